// SPDX-License-Identifier: Apache-2.0
// Layer norm on CUDA, differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include "hkt/export.h"

namespace hkt::ops {

// Whether layer_norm_cuda supports these: float32, on one CUDA device, a norm over the last dimension, and a width within
// the kernels' limit.
HKT_EXPORT bool layer_norm_cuda_takes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// The norm over the last dimension of x, computed in float32; the result has dtype `type`, float32 or bfloat16.
HKT_EXPORT at::Tensor layer_norm_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      double epsilon, at::ScalarType type);

}  // namespace hkt::ops
