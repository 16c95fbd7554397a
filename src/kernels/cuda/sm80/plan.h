// SPDX-License-Identifier: Apache-2.0
// Sizes of the sm80 kernels' tiles and of the memory they take, and the functions that start them.
#pragma once

#include "common/backward_preprocess.h"
#include "common/problem.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm80 {

// What a CTA keeps about where its arrays lie.
inline constexpr int source_bytes = 16 * (max_levels + 1);

namespace forward_tile {
inline constexpr int keys = 64;
// A warp has 32 queries. Of wide heads two warps share them: each has half of the keys, and of the output's columns.
template <int width>
inline constexpr int parts = width > 128 ? 2 : 1;
template <int width, int queries>
inline constexpr int threads = queries * parts<width>;
// All levels of queries and keys, values; what the warps that share queries exchange: probabilities, a number for each row.
template <int width, int queries>
constexpr int shared_bytes(int levels) {
  const int exchanged = parts<width> > 1 ? queries * keys * 2 + parts<width> * queries * 4 : 0;
  return (level_base(queries, levels) + level_base(keys, levels) + keys) * width * 2 + exchanged + source_bytes;
}
// The queries of a tile for a problem, or 0 if none will do.
template <int width>
constexpr int queries_for(int levels, int shared_bytes) {
  if (forward_tile::shared_bytes<width, 128>(levels) <= shared_bytes) return 128;
  return width > 128 && forward_tile::shared_bytes<width, 64>(levels) <= shared_bytes ? 64 : 0;
}
}  // namespace forward_tile

namespace backward_tile {
inline constexpr int queries = 64;
// A tile has 128 keys and eight warps, or 64 keys and four warps if several such CTAs fit on an SM, each filling the others'
// waits. Wide heads need eight warps for 64 keys, too.
template <int width, int n>
inline constexpr int threads = n == 64 && width <= 64 ? 128 : 256;
template <int width, int n>
inline constexpr int resident = n == 128 || width >= 128 ? 1
                                : width == 64            ? 2
                                                         : 3;  // CTAs that registers leave room for
// Wide heads with many keys or levels leave no registers for the gradients of the coarse levels' keys: they are summed in the
// workspace; of 128 keys for up to three levels.
template <int width, int n, int max_level_count>
inline constexpr bool parks_coarse_keys = (width == 128 && n == 128) || (width == 256 && max_level_count > 3);
template <int width, int n, int max_level_count>
inline constexpr int parked_floats = (n / 2 + (max_level_count - 2) * n / 4) * width;
// Of queries and grad_out: the next step's are copied while a step computes, or, where they do not fit, as soon as the step
// has read its own (backward_wide.h).
template <int width>
inline constexpr int stages = width > 128 ? 1 : 2;

// Where things lie in shared memory, in bytes. Keys and values of the tile, the stages of queries and grad_out, then
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
  at.probabilities = (at.stages + stages<width> * at.stage_bytes + 127) / 128 * 128;
  at.gradients = at.probabilities + n * queries * 2;
  at.pairs = at.gradients + n * queries * 2;
  at.quads = at.pairs + n / 2 * queries / 2 * 2;
  at.quad_scores = at.quads + n / 4 * queries / 4 * 2;
  at.row_data = at.quad_scores + (levels > 2 ? n / 4 * quad_pitch * 4 : 0);  // lse and delta of the stages
  at.sources = at.row_data + stages<width> * 2 * queries * 4;
  at.is_next = at.sources + source_bytes;
  at.end = at.is_next + 16;
  return at;
}
// The keys of a tile for a problem, or 0 if none will do. A row of the coarsest level spans two tiles at most.
template <int width>
constexpr int keys_for(int levels, int shared_bytes) {
  static_assert(2 * 64 >> (max_levels - 1) > 0);
  constexpr int reserved = 1024, ctas = resident<width, 64>;  // each CTA takes so much more
  const int few = layout_of<width, 64>(levels).end, many = layout_of<width, 128>(levels).end;
  if (ctas > 1 && ctas * (few + reserved) <= shared_bytes + reserved) return 64;
  if (width <= 128 && many <= shared_bytes && (width < 128 || levels <= 3)) return 128;
  return few <= shared_bytes ? 64 : 0;
}
}  // namespace backward_tile

// The tiles that have queries, by their number among all tiles of positions.
struct QueryTiles {
  int first, count;
};
constexpr QueryTiles query_tiles(const AttentionForward& problem) {
  constexpr int queries = backward_tile::queries;
  const int first = static_cast<int>(problem.start / queries);
  return {first, static_cast<int>(ceil_divide<std::int64_t>(problem.start + problem.queries, queries)) - first};
}
// Rows of grad_q's sums of a level, which begin with those tiles. Up to level 2 they are fragments of whole tiles of queries.
// Level 7 has a row for every tile, of which two belong to a row of the level: CTAs add to a row in the order of one tile's
// semaphore.
inline constexpr int last_fragment_level = 2;
constexpr std::int64_t sum_rows(const AttentionForward& problem, int level) {
  using backward_tile::queries;
  const QueryTiles tiles = query_tiles(problem);
  if (level <= last_fragment_level) return static_cast<std::int64_t>(tiles.count) * (queries >> level);
  return level_rows(problem.start + problem.queries - tiles.first * queries, level < 7 ? level : 6);
}
// Rows of a level of the queries, and of those before them in their first tile.
constexpr int finished_rows(const AttentionForward& problem, int level) {
  const std::int64_t first = problem.start / backward_tile::queries * backward_tile::queries;
  return static_cast<int>(level_rows(problem.start + problem.queries, level) - (first >> level));
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
  w.lse = take(sequences * padded_queries(problem));
  w.delta = take(sequences * padded_queries(problem));
  if (width == 128 && problem.levels > 1 && keys_for<128>(problem.levels, shared_bytes) == 128)
    w.coarse_keys = take(sequences * ceil_divide<std::int64_t>(problem.length, 128) * parked_floats<128, 128, 3>);
  if (width == 256 && problem.levels > 3)
    w.coarse_keys =
        take(sequences * ceil_divide<std::int64_t>(problem.length, 64) * parked_floats<256, 64, max_levels>);
  for (int level = 0; level < problem.levels; ++level)
    w.sums[level] = take(sequences * sum_rows(problem, level) * width);
  if (problem.levels == max_levels)
    w.half_rows = take(sequences * ceil_divide<std::int64_t>(problem.length, 64) * width);
  w.parts = query_tiles(problem).count;
  w.partials = take(sequences * w.parts * problem.levels);
  w.semaphore_count = sequences * query_tiles(problem).count;
  w.semaphores = take(w.semaphore_count);
  w.end = at;
  return w;
}

// Compiled in one file for each element type and width; max_level_count: 3 or max_levels.
template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device);
template <class T, int width>
void start_extend(const AttentionExtend& problem, const Device& device);
template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace);

}  // namespace hkt::kernels::cuda::sm80
