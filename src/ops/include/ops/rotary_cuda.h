// SPDX-License-Identifier: Apache-2.0
// Rotary positions on CUDA, differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hkt/export.h"

namespace hkt::ops {

// Whether rotary_cuda supports rows of this type and on this device.
HKT_EXPORT bool rotary_cuda_takes(const at::Tensor& rows);

// Pairs of channels of rows [B, T, heads, D] as complex numbers times factors, complex [T, D / 2], computed in float32. The heads
// are cut into parts of these sizes: [B, part, T, D] each. factors has no gradient.
HKT_EXPORT std::vector<at::Tensor> rotary_cuda(const at::Tensor& rows, const at::Tensor& factors,
                                               at::IntArrayRef parts);

}  // namespace hkt::ops
