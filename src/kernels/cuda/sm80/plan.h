// SPDX-License-Identifier: Apache-2.0
// Sizes of the sm80 kernels' tiles and of the memory they take, and the functions that start them.
#pragma once

#include "common/backward_preprocess.h"
#include "common/problem.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm80 {

// What a block keeps about where its arrays lie.
inline constexpr int source_bytes = 16 * (max_levels + 1);

namespace forward_tile {
inline constexpr int threads = 128, queries = 128, keys = 64;
template <int width>
constexpr int shared_bytes(int levels) {
  return (level_base(queries, levels) + level_base(keys, levels) + keys) * width * 2 + source_bytes;
}
}  // namespace forward_tile

namespace backward_tile {
inline constexpr int queries = 64;
// A tile has 128 keys and eight warps, or 64 keys and four warps if several such CTAs fit on an
// SM, each filling the others' waits. Wide heads need eight warps for 64 keys, too.
template <int width, int n>
inline constexpr int threads = n == 64 && width <= 64 ? 128 : 256;
template <int width, int n>
inline constexpr int side_by_side = n == 128 || width == 128 ? 1
                                    : width == 64            ? 2
                                                             : 3;  // registers leave room for
// Wide heads with many keys leave no registers for the gradients of the coarse levels' keys: they are summed in the
// workspace, for up to three levels.
template <int width, int n>
inline constexpr bool parks_coarse_keys = width == 128 && n == 128;
template <int width, int n>
inline constexpr int parked_floats = (n / 2 + n / 4) * width;

// Where things lie in shared memory, in bytes. Keys and values of the tile, two stages of queries and grad_out, then
// probabilities, gradients of the scores and sums of those over 2 × 2 and 4 × 4 as [key][query]; scores of the levels
// beyond 1; whether the CTA is next to add its query gradients.
struct Layout {
  int values, stages, stage_bytes, probabilities, gradients, pairs, quads, quad_scores, row_data, sources, is_next;
  int end;
};
inline constexpr int quad_pitch = queries / 4 + 4;  // of those scores; spread over the banks
template <int width, int n>
__host__ __device__ constexpr Layout layout_of(int levels) {
  constexpr int row = width * 2;
  Layout at{};
  at.values = level_base(n, levels) * row;
  at.stages = at.values + n * row;
  at.stage_bytes = (level_base(queries, levels) + queries) * row;
  at.probabilities = (at.stages + 2 * at.stage_bytes + 127) / 128 * 128;
  at.gradients = at.probabilities + n * queries * 2;
  at.pairs = at.gradients + n * queries * 2;
  at.quads = at.pairs + n / 2 * queries / 2 * 2;
  at.quad_scores = at.quads + n / 4 * queries / 4 * 2;
  at.row_data = at.quad_scores + (levels > 2 ? n / 4 * quad_pitch * 4 : 0);  // lse and delta of the two stages
  at.sources = at.row_data + 2 * 2 * queries * 4;
  at.is_next = at.sources + source_bytes;
  at.end = at.is_next + 16;
  return at;
}
// The keys of a tile for a problem, or 0 if none will do. A row of the coarsest level spans two tiles at most.
template <int width>
constexpr int keys_for(int levels, int shared_bytes) {
  static_assert(2 * 64 >> (max_levels - 1) > 0);
  constexpr int reserved = 1024, blocks = side_by_side<width, 64>;  // each block takes so much more
  const int few = layout_of<width, 64>(levels).end, many = layout_of<width, 128>(levels).end;
  if (blocks > 1 && blocks * (few + reserved) <= shared_bytes + reserved) return 64;
  if (many <= shared_bytes && (!parks_coarse_keys<width, 128> || levels <= 3)) return 128;
  return few <= shared_bytes ? 64 : 0;
}
}  // namespace backward_tile

// Rows of grad_q's sums. Up to level 2 they are fragments of whole tiles of queries. Level 7 has a row for every tile, of
// which two belong to a row of the level: CTAs add to a row in the order of one tile's semaphore.
inline constexpr int last_fragment_level = 2;
inline std::int64_t sum_rows(std::int64_t length, int level) {
  using backward_tile::queries;
  if (level <= last_fragment_level) return ceil_divide<std::int64_t>(length, queries) * (queries >> level);
  return level_rows(length, level < 7 ? level : 6);
}

// Sections of the workspace, in floats. From sums on it must be zero at the start.
struct Workspace {
  std::int64_t lse, delta, sums[max_levels], coarse_keys, half_rows, partials, semaphores, end;
  std::int64_t parts, semaphore_count;
};
inline Workspace workspace_of(const AttentionBackward& problem, int width, int shared_bytes) {
  using namespace backward_tile;
  const std::int64_t sequences = problem.batch * problem.heads;
  Workspace w{};
  std::int64_t at = 0;
  const auto take = [&](std::int64_t floats) {
    const std::int64_t begin = at;
    at += ceil_divide<std::int64_t>(floats, 64) * 64;
    return begin;
  };
  w.lse = take(sequences * padded_length(problem.length));
  w.delta = take(sequences * padded_length(problem.length));
  if (width == 128 && problem.levels > 1 && keys_for<128>(problem.levels, shared_bytes) == 128)
    w.coarse_keys = take(sequences * ceil_divide<std::int64_t>(problem.length, 128) * parked_floats<128, 128>);
  for (int level = 0; level < problem.levels; ++level)
    w.sums[level] = take(sequences * sum_rows(problem.length, level) * width);
  if (problem.levels == max_levels)
    w.half_rows = take(sequences * ceil_divide<std::int64_t>(problem.length, 64) * width);
  w.parts = ceil_divide<std::int64_t>(problem.length, 64);
  w.partials = take(sequences * w.parts * problem.levels);
  w.semaphore_count = sequences * ceil_divide<std::int64_t>(problem.length, queries);
  w.semaphores = take(w.semaphore_count);
  w.end = at;
  return w;
}

// Compiled in one file for each element type and width; max_level_count: 3 or max_levels.
template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device);
template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace);

}  // namespace hkt::kernels::cuda::sm80
