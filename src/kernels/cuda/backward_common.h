// What the backward passes of all tensor-core kernels share: data of each row before, the gradient of the weights after.
#pragma once

#include "hkt/kernels.h"
#include "launch.h"

namespace hkt::kernels::cuda {

// Rows of a sequence in the arrays below: the length, rounded up so that a tile of queries never leaves its sequence.
inline std::int64_t padded_length(std::int64_t length) { return ceil_divide<std::int64_t>(length, 128) * 128; }

// For each row of [batch, heads, padded_length]: lse in base 2 (+infinity for padding, so that its probabilities are zero)
// and delta = Σ out · grad_out (0 for padding).
void row_data(const AttentionBackward& problem, const Device& device, float* lse, float* delta);

// grad_weights[h][l] = Σ over batch and parts of partials[batch, heads, parts, levels], always in the same order.
void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts);

}  // namespace hkt::kernels::cuda
