// SPDX-License-Identifier: Apache-2.0
// The operators hkt::attention, hkt::attention_extend, hkt::decode and hkt::downsample for C++ callers; in Python they are
// torch.ops.hkt.*.
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

// The rows of a level of a sequence: ceil(length / 2^level).
constexpr std::int64_t level_rows(std::int64_t length, std::int64_t level) {
  return (length + (std::int64_t{1} << level) - 1) >> level;
}

// Softmax attention over S[i,j] = scale · Σ_l weights[h,l] · ⟨q[l][i >> l], k[l][j >> l]⟩.
//   k[l]     [B, Hk, ceil(T / 2^l), D]      v  [B, Hk, T, Dv]      weights  [H, L]      lengths  [B], valid tokens
//   q[0]     [B, H, n, D]: positions start … start + n − 1 of T; all of them by default
//   q[l]     [B, H, ceil((start + n) / 2^l) − floor(start / 2^l), D]: row r is coarse position (start >> l) + r
// H is a multiple of Hk; head h of q reads head h / (H / Hk) of k and v.
// Returns out [B, H, n, Dv] and the log-sum-exp of each row [B, H, n]. Both are differentiable in q, k, v and weights.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                        const at::Tensor& weights, bool causal = false,
                                                        const std::optional<at::Tensor>& lengths = {},
                                                        std::optional<double> scale = {}, std::int64_t start = 0);

// Attention of the last n positions of every sequence over cached keys and values, under the causal mask: decoding (n = 1),
// chunks of a prompt, drafts. For inference: it has no gradient.
//   ends     [B]: sequence b has ends[b] positions so far; its queries are positions ends[b] − n … ends[b] − 1
//   k[l]     [B, Hk, capacity_l, D]      v  [B, Hk, capacity, Dv]: the caches, of which ceil(ends[b] / 2^l) rows are read
//   q[0]     [B, H, n, D]
//   q[l]     [B, H, rows, D]: row r is coarse position ((ends[b] − n) >> l) + r; ((n + 2^l − 2) >> l) + 1 rows are always enough
// Rows at negative positions (ends[b] < n) give 0 and −inf. The values of `ends` are checked on the CPU; on CUDA they are clamped
// to the capacity, and rows that q[l] does not have count as zeros. Returns out [B, H, n, Dv] and lse [B, H, n].
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention_extend(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                               const at::Tensor& weights, const at::Tensor& ends,
                                                               std::optional<double> scale = {});

// attention_extend for n = 1 that keeps the scores of the coarse levels from token to token, so that a step reads fewer keys:
//   coarse[l − 1]  [B, H, at least ceil(capacity / 2^l)], float32 (float64 for float64 inputs), for levels l ≥ 1
// At token t = ends[b] − 1 level l is computed if 2^l divides t, and read (k[l] and q[l] are not) if not. With `refresh` all levels
// are computed: at the first token, after a prompt, and after tokens were taken back.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> decode(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                     const at::Tensor& weights, const at::Tensor& ends,
                                                     at::TensorList coarse, std::optional<double> scale = {},
                                                     bool refresh = false);

// Causal downsampling by two: y[m] = Σ_r x[2m − r] · weight[r].
//   x  [B, T, d]      weight  [K, d, d] (dense) or [K, d] (depthwise)      returns  [B, ceil(T / 2), d]
HKT_EXPORT at::Tensor downsample(const at::Tensor& x, const at::Tensor& weight);

// The instruction set of the CPU kernels in use: the machine's best, limited by torch's ATEN_CPU_CAPABILITY.
HKT_EXPORT std::string cpu_kernels();

}  // namespace hkt
