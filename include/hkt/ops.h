// SPDX-License-Identifier: Apache-2.0
// The operators hkt::attention and hkt::downsample for C++ callers; in Python they are torch.ops.hkt.*.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "hkt/export.h"

namespace hkt {

// Limits of hkt::attention: the number of levels, and the head widths D and Dv.
inline constexpr std::int64_t max_levels = 8, max_head_width = 256;

// Softmax attention over S[i,j] = scale · Σ_l weights[h,l] · ⟨q[l][i >> l], k[l][j >> l]⟩.
//   q[l], k[l]  [B, H, ceil(T / 2^l), D]      v  [B, H, T, Dv]      weights  [H, L]      lengths  [B], valid tokens
// Returns out [B, H, T, Dv] and the log-sum-exp of each row [B, H, T]. Differentiable in q, k, v and weights.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                        const at::Tensor& weights, bool causal = false,
                                                        const std::optional<at::Tensor>& lengths = {},
                                                        std::optional<double> scale = {});

// Causal downsampling by two: y[m] = Σ_r x[2m − r] · weight[r].
//   x  [B, T, d]      weight  [K, d, d] (dense) or [K, d] (depthwise)      returns  [B, ceil(T / 2), d]
HKT_EXPORT at::Tensor downsample(const at::Tensor& x, const at::Tensor& weight);

// The instruction set of the CPU kernels in use: the machine's best, limited by torch's ATEN_CPU_CAPABILITY.
HKT_EXPORT std::string cpu_kernels();

}  // namespace hkt
