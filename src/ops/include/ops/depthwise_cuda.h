// SPDX-License-Identifier: Apache-2.0
// Depthwise causal convolutions on CUDA. hkt::downsample and the module ShortConvolution call them; the operator has a gradient of
// its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "hkt/export.h"

namespace hkt::ops {

// Whether these functions take x: they need CUDA, and not float64.
HKT_EXPORT bool depthwise_cuda_takes(const at::Tensor& x);

// y[b, m] = Σ_r weight[r] · x[b, step · m − r] for [B, T, width] and [taps, width], step being 1 or 2.
at::Tensor depthwise_cuda(const at::Tensor& x, const at::Tensor& weight, std::int64_t step);
std::tuple<at::Tensor, at::Tensor> depthwise_backward_cuda(const at::Tensor& grad, const at::Tensor& x,
                                                           const at::Tensor& weight, std::int64_t step);

// The same with step 1, differentiable.
HKT_EXPORT at::Tensor short_convolution_cuda(const at::Tensor& x, const at::Tensor& weight);

}  // namespace hkt::ops
