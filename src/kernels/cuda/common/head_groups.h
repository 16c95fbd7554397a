// SPDX-License-Identifier: Apache-2.0
// The order of the backward pass's CTAs in the grid, which decides what the L2 cache holds and how long the last CTAs run.
#pragma once

#include <algorithm>

#include "common/launch.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// Heads (of all sequences) are taken in groups of `size`: each tile of keys in all heads of a group before the next tile. The
// last group has all heads that are left.
struct HeadGroups {
  int size, count;
};

// For CTAs of a tile of keys each, of which `resident` run at the same time.
inline HeadGroups head_groups(const AttentionForward& problem, std::int64_t key_tiles, std::int64_t resident) {
  const std::int64_t heads = problem.batch * problem.heads;
  std::int64_t size = 1, count = heads;
  if (problem.causal) {
    // CTAs of the first keys have most to do and start first, in as many heads at once as have their queries and output
    // gradients in half of the L2 cache. The last group has at least three waves of CTAs, so that the light ones, which come
    // last, even out what the heavy ones leave.
    constexpr std::int64_t cached_bytes = std::int64_t{24} << 20, waves = 3;
    const std::int64_t head_bytes = problem.queries * problem.width * 8;  // queries of two levels and more, grad_out
    size = std::clamp<std::int64_t>(cached_bytes / head_bytes, 1, heads);
    count = std::max<std::int64_t>(1, 1 + (heads - ceil_divide<std::int64_t>(waves * resident, key_tiles)) / size);
  }
  return {static_cast<int>(size), static_cast<int>(count)};
}

// For a fixed order of additions (semaphore.h), in which each CTA is a step behind the one before it in its head: about
// `of_a_head` CTAs of each head are resident. More would wait for each other, fewer need more of the L2 cache.
inline HeadGroups ordered_head_groups(const AttentionForward& problem, std::int64_t of_a_head, std::int64_t resident) {
  const std::int64_t heads = problem.batch * problem.heads, wanted = std::max<std::int64_t>(1, resident / of_a_head);
  const std::int64_t size = ceil_divide(heads, std::max<std::int64_t>(1, (heads + wanted / 2) / wanted));
  return {static_cast<int>(size), static_cast<int>(ceil_divide(heads, size))};
}

}  // namespace hkt::kernels::cuda
