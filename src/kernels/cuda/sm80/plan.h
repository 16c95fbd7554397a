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
// Wide heads leave registers for fewer keys.
template <int width>
inline constexpr int keys = width > 64 ? 64 : 128;
template <int width>
constexpr int shared_bytes(int levels) {
  constexpr int n = keys<width>;
  const int stationary = (level_base(n, levels) + n) * width * 2;
  const int stage = (level_base(queries, levels) + queries) * width * 2 + 2 * queries * 4;
  return stationary + 2 * stage + (2 * n * queries + n / 2 * queries / 2) * 2;
}
}  // namespace backward_tile

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
    w.sums[level] = take(sequences * ceil_divide<std::int64_t>(problem.length, std::int64_t(1) << level) * width);
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
