// SPDX-License-Identifier: Apache-2.0
// A step of the backward pass, second half: what it adds to the gradients of values, keys and queries; and writing those of
// values and keys at the end.
#pragma once

#include "sm80/backward_block.h"

namespace hkt::kernels::cuda::sm80 {

// Adds a step's part of grad_v,
template <class T, int width, int n, int max_level_count>
__device__ __forceinline__ void add_value_gradients(KeyGradients<width, n, max_level_count>& sums,
                                                    const Block<width, n>& block, int stage) {
  using S = Share<width, n>;
  add_outer<T, backward_tile::queries / 16, false>(sums.values, straight(block.p, 32 * S::key_warp()),
                                                   inner<S::column_blocks>(block.grad_out(stage), S::query_warp()));
}
// and of grad_k; is_first: of the first step.
template <class T, int width, int n, int max_level_count>
__device__ __forceinline__ void add_key_gradients(KeyGradients<width, n, max_level_count>& sums,
                                                  const Block<width, n>& block, int stage, bool is_first) {
  using namespace backward_tile;
  using S = Share<width, n>;
  constexpr int blocks = S::column_blocks;
  const Swizzled<width> q = block.q(stage);
  const int first = 32 * S::key_warp(), part = S::query_warp();
  add_outer<T, queries / 16, false>(sums.keys, straight(block.ds, first), inner<blocks>(q, part));
  if (block.levels > 1)
    sums.pairs.add(is_first, [&](auto& to, auto fresh) {
      add_outer<T, queries / 32, fresh>(to, straight(block.pairs, first / 2),
                                        inner<blocks>(q, part, level_base(queries, 1)));
    });
#pragma unroll
  for (int level = 2; level < max_level_count; ++level)
    if (level < block.levels)
      sums.quads[level - 2].add(is_first, [&](auto& to, auto fresh) {
        add_outer<T, 1, fresh>(
            to, straight(block.quads, 16 * (S::warp() % S::quad_tiles)),
            repeated<S::quad_blocks>(q, S::warp() / S::quad_tiles, level_base(queries, level), level - 2));
      });
}

// Where the sums of a level up to last_fragment_level have a tile of queries.
template <int width, int n>
__device__ __forceinline__ float* fragments_of(const Block<width, n>& block, const Sums& sums, int level, int query) {
  constexpr int queries = backward_tile::queries;
  return sums.queries[level] + block.tile_of_all(query / queries) * ((queries >> level) * width);
}
// Adds fragments to such a tile, from block `first` of 16 rows and column block `column` on.
template <int width, int rows, int blocks>
__device__ __forceinline__ void add_fragments(float* tile, int first, int column,
                                              const float (&sums)[rows][blocks][4]) {
  float* to = tile + (first * (width / 8) + column) * fragment_floats;
#pragma unroll
  for (int m = 0; m < rows; ++m)
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      add_fragment(to + (m * (width / 8) + b) * fragment_floats, threadIdx.x % 32, sums[m][b]);
}

// Sums over groups of 2, 4, 8 or 16 neighbouring rows of a 16-row fragment, in the first row of each.
template <int blocks>
__device__ __forceinline__ void sum_neighbours(float (&sums)[1][blocks][4], int group) {
  for (int lanes = 4; lanes <= 16 && lanes < 4 * group; lanes *= 2)
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[0][n][i] += __shfl_xor_sync(~0u, sums[0][n][i], lanes);
  if (group > 8) {
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[0][n][i] += sums[0][n][i + 2];
  }
}

// Adds a step's part of grad_q of a level beyond 1.
template <class T, int width, int n>
__device__ __forceinline__ void add_quad_gradients(const Block<width, n>& block, int query, int level,
                                                   const Sums& to_sums) {
  using S = Share<width, n>;
  constexpr int blocks = S::query_quad_blocks;
  if (S::warp() * blocks * 8 >= width) return;
  float sums[1][blocks][4];
  add_outer<T, n / 64, true>(sums, transposed(block.quads, 0),
                             repeated<blocks>(block.k, S::warp(), level_base(n, level), level - 2));
  const int column = S::warp() * blocks;
  if (level <= last_fragment_level) {
    add_fragments<width>(fragments_of(block, to_sums, level, query), 0, column, sums);
    return;
  }
  const int stored = min(level, 6), group = 1 << (stored - 2);  // quads in one row of the sums
  const int origin = block.query_tiles.first * backward_tile::queries;
  const int first = (query - origin) >> stored, rows = level_rows(block.window.end - origin, stored);
  sum_neighbours(sums, group);
  float* to = to_sums.queries[level] + (block.sequence * rows + first) * width + 8 * column + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int quad = threadIdx.x % 32 / 4 + 8 * half;
    if (quad % group || first + quad / group >= rows) continue;
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      add_pair(to + quad / group * width + 8 * b, sums[0][b][2 * half], sums[0][b][2 * half + 1]);
  }
}

// Adds a step's part of grad_q after wait(), which returns when all CTAs before this one have added theirs.
template <class T, int fixed, int width, int n, class Wait>
__device__ __forceinline__ void add_query_gradients(const Block<width, n>& block, int query, const Sums& to,
                                                    const Wait& wait) {
  using S = Share<width, n>;
#pragma unroll
  for (int pass = 0; pass < S::query_passes; ++pass) {
    float sums[S::query_tiles][S::query_blocks][4];
    const int part = S::query_passes * (S::warp() % S::along) + pass, first = S::query_tiles * (S::warp() / S::along);
    add_outer<T, n / 16, true>(sums, transposed(block.ds, 16 * first), inner<S::query_blocks>(block.k, part));
    if (pass == 0) wait();
    add_fragments<width>(fragments_of(block, to, 0, query), first, part * S::query_blocks, sums);
  }
  if (block.levels > 1) {
    float sums[1][S::pair_blocks][4];
    const int part = S::warp() % S::pair_parts, first = S::warp() / S::pair_parts;
    add_outer<T, n / 32, true>(sums, transposed(block.pairs, 16 * first),
                               inner<S::pair_blocks>(block.k, part, level_base(n, 1)));
    add_fragments<width>(fragments_of(block, to, 1, query), first, part * S::pair_blocks, sums);
  }
  for_levels<fixed>(2, block.levels, [&](int level) { add_quad_gradients<T>(block, query, level, to); });
}

// Writes a fine gradient of the keys.
template <class T, int width, int n>
__device__ __forceinline__ void write_fine(const Array& to, const Block<width, n>& block,
                                           const float (&sums)[2][Share<width, n>::column_blocks][4], float factor,
                                           int out_width) {
  using S = Share<width, n>;
  T* result = rows_of<T>(to, block.place);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = block.place.first + 32 * S::key_warp() + 16 * m + 8 * half + threadIdx.x % 32 / 4;
      if (row >= block.length) continue;
#pragma unroll
      for (int b = 0; b < S::column_blocks; ++b) {
        const int column = (S::query_warp() * S::column_blocks + b) * 8 + 2 * (threadIdx.x % 4);
        if (column < out_width)
          *reinterpret_cast<std::uint32_t*>(result + row * to.row_stride + column) =
              pack<T>(sums[m][b][2 * half] * factor, sums[m][b][2 * half + 1] * factor);
      }
    }
}

// Writes a coarse one by way of shared memory: a row is the sum of `group` rows of the fragments, added up in order. Of a row
// longer than the tile this is but a half, for join_kernel.
template <class T, int width, int n, int blocks, bool parked>
__device__ __forceinline__ void write_coarse(const AttentionBackward& problem, const Block<width, n>& block, int level,
                                             const CoarseSum<blocks, parked>& all, int first_row, int part, int group,
                                             float (*scratch)[width], float* half_rows) {
  const int lane = threadIdx.x % 32;
  float sums[1][blocks][4];
  all.read(sums, block.steps() > 0);
  __syncthreads();
#pragma unroll
  for (int b = 0; b < blocks; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scratch[first_row + lane / 4 + 8 * (i / 2)][(part * blocks + b) * 8 + 2 * (lane % 4) + i % 2] = sums[0][b][i];
  __syncthreads();
  const auto sum_of = [&](int from, int count, int column) {
    float2 sum = {0, 0};
    for (int j = from; j < from + count; ++j) sum.x += scratch[j][column], sum.y += scratch[j][column + 1];
    return sum;
  };
  if (n >> level == 0) {
    const std::int64_t tile = block.sequence * ((block.length + n - 1) / n) + block.place.first / n;
    const int column = 2 * threadIdx.x;
    if (column < width) *reinterpret_cast<float2*>(half_rows + tile * width + column) = sum_of(0, n / 4, column);
    return;
  }
  const Array& to = problem.grad_k[level];
  T* result = rows_of<T>(to, block.place);
  const int first = block.place.first >> level, count = min(n >> level, level_rows(block.length, level) - first);
  const float factor = block.weights[level] * static_cast<float>(problem.scale);
  for (int i = threadIdx.x; i < count * (width / 2); i += backward_tile::threads<width, n>) {
    const int row = i / (width / 2), column = i % (width / 2) * 2;
    if (column >= problem.width) continue;
    const float2 sum = sum_of(row * group, group, column);
    *reinterpret_cast<std::uint32_t*>(result + static_cast<std::int64_t>(first + row) * to.row_stride + column) =
        pack<T>(sum.x * factor, sum.y * factor);
  }
}

// Writes all gradients of the keys and values. `memory`: of the block, of which that of k and v is used.
template <class T, int width, int n, int max_level_count>
__device__ __forceinline__ void write_key_gradients(const AttentionBackward& problem, const Block<width, n>& block,
                                                    const KeyGradients<width, n, max_level_count>& sums,
                                                    unsigned char* memory, float* half_rows) {
  using S = Share<width, n>;
  const float factor = block.weights[0] * static_cast<float>(problem.scale);
  write_fine<T>(problem.grad_v, block, sums.values, 1, problem.value_width);
  write_fine<T>(problem.grad_k[0], block, sums.keys, factor, problem.width);
  float (*scratch)[width] = reinterpret_cast<float (*)[width]>(memory);
  if (block.levels > 1)
    write_coarse<T>(problem, block, 1, sums.pairs, 16 * S::key_warp(), S::query_warp(), 1, scratch, half_rows);
#pragma unroll
  for (int level = 2; level < max_level_count; ++level)
    if (level < block.levels)
      write_coarse<T>(problem, block, level, sums.quads[level - 2], 16 * (S::warp() % S::quad_tiles),
                      S::warp() / S::quad_tiles, 1 << (level - 2), scratch, half_rows);
}

}  // namespace hkt::kernels::cuda::sm80
