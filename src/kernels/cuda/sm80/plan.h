// Sizes of the sm80 kernels' tiles and of the memory they take, and the functions that start them.
#pragma once

#include "../backward_common.h"
#include "hkt/kernels.h"

namespace hkt::kernels::cuda::sm80 {

// Level l of a tile of `tokens` tokens begins at this row; it has tokens / 2^l of them, at least one.
__host__ __device__ constexpr int level_base(int tokens, int level) { return 2 * tokens - ((2 * tokens) >> level); }

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
inline constexpr int threads = 256, queries = 64;
// Keys of a tile: wide heads leave registers for 64 only; for heads of 64 some devices leave shared memory for no more.
template <int width>
inline constexpr int most_keys = width > 64 ? 64 : 128;
template <int width>
inline constexpr int least_keys = width > 32 ? 64 : 128;

// Where things lie in shared memory, in bytes. Keys and values of the tile, two stages of queries and grad_out, then
// probabilities, gradients of the scores and sums of those over 2 × 2 and 4 × 4 as [key][query]; scores of level 1 and of
// the levels beyond.
struct Layout {
  int values, stages, stage_bytes, probabilities, gradients, pairs, quads, pair_scores, quad_scores, row_data, sources;
  int end;
};
inline constexpr int pair_pitch = queries / 2 + 4,
                     quad_pitch = queries / 4 + 4;  // of those scores; spread over the banks
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
  at.pair_scores = at.quads + n / 4 * queries / 4 * 2;
  at.quad_scores = at.pair_scores + (levels > 1 ? n / 2 * pair_pitch * 4 : 0);
  at.row_data = at.quad_scores + (levels > 2 ? n / 4 * quad_pitch * 4 : 0);  // lse and delta of the two stages
  at.sources = at.row_data + 2 * 2 * queries * 4;
  at.end = at.sources + source_bytes;
  return at;
}
// The keys of a tile for a problem, or 0 if none will do: the coarsest level's rows must not span tiles.
template <int width>
constexpr int keys_for(int levels, int shared_bytes) {
  constexpr int most = most_keys<width>, least = least_keys<width>;
  if (layout_of<width, most>(levels).end <= shared_bytes && most >> (levels - 1)) return most;
  if (layout_of<width, least>(levels).end <= shared_bytes && least >> (levels - 1)) return least;
  return 0;
}
}  // namespace backward_tile

// Sums of grad_q of level 7 have a row for every tile of queries, of which two belong to a row of the level: what blocks
// add to a row they add in the order of their turns at one tile.
inline std::int64_t sum_rows(std::int64_t length, int level) {
  return ceil_divide<std::int64_t>(length, std::int64_t(1) << (level < 7 ? level : 6));
}

// Sections of the workspace, in floats.
struct Workspace {
  std::int64_t lse, delta, sums[max_levels], partials, turns, end;
  std::int64_t parts, turn_count;
};
inline Workspace workspace_of(const AttentionBackward& problem, int width) {
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
  for (int level = 0; level < problem.levels; ++level)
    w.sums[level] = take(sequences * sum_rows(problem.length, level) * width);
  w.parts = ceil_divide<std::int64_t>(problem.length, 64);
  w.partials = take(sequences * w.parts * problem.levels);
  w.turn_count = sequences * ceil_divide<std::int64_t>(problem.length, backward_tile::queries);
  w.turns = take(w.turn_count);
  w.end = at;
  return w;
}

// Compiled in one file for each element type and width; max_level_count: 3 or max_levels.
template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device);
template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace);

}  // namespace hkt::kernels::cuda::sm80
