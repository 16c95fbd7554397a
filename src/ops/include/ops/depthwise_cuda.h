// SPDX-License-Identifier: Apache-2.0
// Depthwise causal convolutions on CUDA, for hkt::downsample, which has an autograd node of its own, and for the modules.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "hkt/export.h"

namespace hkt::ops {

// Whether these functions take x: they need CUDA, and not float64.
HKT_EXPORT bool depthwise_cuda_takes(const at::Tensor& x);

// The parts of hkt::downsample for weights [taps, width].
at::Tensor downsample_cuda(const at::Tensor& x, const at::Tensor& weight);
std::tuple<at::Tensor, at::Tensor> downsample_backward_cuda(const at::Tensor& grad, const at::Tensor& x,
                                                            const at::Tensor& weight);

// The module ShortConvolution for weights [taps, width]: y[t] = x[t] + Σ_r weight[r] · x[t − r]. Differentiable.
HKT_EXPORT at::Tensor short_convolution_cuda(const at::Tensor& x, const at::Tensor& weight);

}  // namespace hkt::ops
