// SPDX-License-Identifier: Apache-2.0
// Layer norm on CUDA, differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include "hkt/export.h"

namespace hkt::ops {

// Whether layer_norm_cuda takes these: float32 on one CUDA device, a norm over the last dimension, of a width for which
// there are kernels.
HKT_EXPORT bool layer_norm_cuda_takes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// The norm over the last dimension of x; the sums are float32, the result has dtype `type`, float32 or bfloat16.
HKT_EXPORT at::Tensor layer_norm_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      double epsilon, at::ScalarType type);

}  // namespace hkt::ops
