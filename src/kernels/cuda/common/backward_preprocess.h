// SPDX-License-Identifier: Apache-2.0
// Before and after the backward kernels of the tensor-core families: lse and delta of each row, the weights' gradient.
#pragma once

#include "common/launch.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda {

inline constexpr std::int64_t largest_tile = 128;  // of queries or keys

// Positions, rounded up so that no tile reaches into the next head.
inline std::int64_t padded_length(std::int64_t length) { return ceil_divide(length, largest_tile) * largest_tile; }

// Tiles of queries lie at multiples of their size, wherever the queries start. Per-row arrays of the backward pass begin at the
// last multiple of the largest tile before the first query, and have padded_queries rows for a head.
inline std::int64_t first_tile_row(const AttentionForward& problem) {
  return problem.start / largest_tile * largest_tile;
}
inline std::int64_t padded_queries(const AttentionForward& problem) {
  return padded_length(problem.start + problem.queries) - first_tile_row(problem);
}

// lse and delta, [batch, heads, padded_queries]: the log-sum-exp in base 2 (+infinity for padding, so that probabilities there
// are zero) and Σ out · grad_out − grad_lse (0 for padding). To be launched first: it takes the last rows first, which the L2 cache may
// still hold from the forward pass.
void backward_preprocess(const AttentionBackward& problem, const Device& device, float* lse, float* delta);

// grad_weights[h][l] = Σ over batch and parts of partials[batch, heads, parts, levels], always in the same order.
void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts);

}  // namespace hkt::kernels::cuda
