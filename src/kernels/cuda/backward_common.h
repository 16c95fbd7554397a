// SPDX-License-Identifier: Apache-2.0
// What the backward passes of all tensor-core kernels share: data of each row before, the gradient of the weights after.
#pragma once

#include <algorithm>

#include "kernels/attention.h"
#include "launch.h"

namespace hkt::kernels::cuda {

// Rows of a sequence in the arrays below: the length, rounded up so that a tile of queries never leaves its sequence.
inline std::int64_t padded_length(std::int64_t length) { return ceil_divide<std::int64_t>(length, 128) * 128; }

// Heads are worked on in groups of `size`, each tile of keys in all heads of a group before the next tile. The last group
// has all heads that are left.
struct HeadGroups {
  int size, count;
};
// For blocks of a tile of keys each, of which so many can run at the same time.
inline HeadGroups head_groups(const AttentionForward& problem, std::int64_t key_tiles, std::int64_t places) {
  const std::int64_t heads = problem.batch * problem.heads;
  std::int64_t size = 1, count = heads;
  if (problem.causal) {
    // The blocks of the first keys have most to do. They start first in as many heads at once as have their queries and
    // output gradients in half of the cache; the last group has enough for three blocks in each place, so that the light
    // ones, which come last, even out what the heavy ones leave.
    const std::int64_t fitting = (std::int64_t{24} << 20) / (problem.length * problem.width * 8);
    size = std::clamp<std::int64_t>(fitting, 1, heads);
    count = std::max<std::int64_t>(1, 1 + (heads - ceil_divide<std::int64_t>(3 * places, key_tiles)) / size);
  }
  return {static_cast<int>(size), static_cast<int>(count)};
}
// For a fixed order of additions, in which each block is a step behind the one before it in its head: about `of_a_head`
// blocks of each head run at the same time. More would wait for each other, fewer need more of the cache.
inline HeadGroups ordered_head_groups(const AttentionForward& problem, std::int64_t of_a_head, std::int64_t places) {
  const std::int64_t heads = problem.batch * problem.heads, wanted = std::max<std::int64_t>(1, places / of_a_head);
  const std::int64_t size = ceil_divide(heads, std::max<std::int64_t>(1, (heads + wanted / 2) / wanted));
  return {static_cast<int>(size), static_cast<int>(ceil_divide(heads, size))};
}

// For each row of [batch, heads, padded_length]: lse in base 2 (+infinity for padding, so that its probabilities are zero)
// and delta = Σ out · grad_out (0 for padding). The last rows come first: they are what the cache may still have of the
// forward pass, and so this should be the first thing that the backward pass does.
void row_data(const AttentionBackward& problem, const Device& device, float* lse, float* delta);

// grad_weights[h][l] = Σ over batch and parts of partials[batch, heads, parts, levels], always in the same order.
void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts);

}  // namespace hkt::kernels::cuda
