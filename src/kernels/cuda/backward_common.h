// What the backward passes of all tensor-core kernels share: data of each row before, the gradient of the weights after.
#pragma once

#include <algorithm>

#include "hkt/kernels.h"
#include "launch.h"

namespace hkt::kernels::cuda {

// Rows of a sequence in the arrays below: the length, rounded up so that a tile of queries never leaves its sequence.
inline std::int64_t padded_length(std::int64_t length) { return ceil_divide<std::int64_t>(length, 128) * 128; }

// With a causal mask the blocks of the first keys have most to do. They start first in as many heads at once as have their
// queries and output gradients in half of the cache: in groups of `size` heads, of which the last one has all that are
// left, and enough of them for three blocks in each place where one can run, so that the light ones, which come last,
// even out what the heavy ones leave.
struct HeadGroups {
  int size, count;
};
inline HeadGroups causal_groups(const AttentionForward& problem, std::int64_t key_tiles, std::int64_t places) {
  const std::int64_t heads = problem.batch * problem.heads;
  const std::int64_t fitting = (std::int64_t{24} << 20) / (problem.length * problem.width * 8);
  const std::int64_t size = std::clamp<std::int64_t>(fitting, 1, heads);
  const std::int64_t least = ceil_divide<std::int64_t>(3 * places, key_tiles);
  const std::int64_t count = std::max<std::int64_t>(1, 1 + (heads - least) / size);
  return {static_cast<int>(size), static_cast<int>(count)};
}

// For each row of [batch, heads, padded_length]: lse in base 2 (+infinity for padding, so that its probabilities are zero)
// and delta = Σ out · grad_out (0 for padding). The last rows come first: they are what the cache may still have of the
// forward pass, and so this should be the first thing that the backward pass does.
void row_data(const AttentionBackward& problem, const Device& device, float* lse, float* delta);

// grad_weights[h][l] = Σ over batch and parts of partials[batch, heads, parts, levels], always in the same order.
void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts);

}  // namespace hkt::kernels::cuda
