// SPDX-License-Identifier: Apache-2.0
// Tiles for the plain kernels: 64 own tokens as rows and 16 · columns other tokens, in the arithmetic T. Thread (x, y) holds
// `rows` × `columns` neighbouring scores. Those are whole scores of the coarser levels (8 × 8 are 4 × 4 of level 1 and
// 2 × 2 of level 2), so adding levels and summing gradients over them needs no other thread. The 16 threads of a row lie
// in one warp: what they tell each other in shared memory needs no barrier of the CTA.
//
// Operands come to shared memory in two stages: while one is computed with, the next is copied.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "common/cp_async.h"
#include "common/element.h"
#include "common/launch.h"
#include "common/problem.h"

namespace hkt::kernels::cuda::plain {

inline constexpr int own_tokens = 64;
inline constexpr int row_bytes = 64;           // of a row of own or other tokens in a stage
inline constexpr int panel_bytes = 16 * 1024;  // of whole rows of other tokens in a stage
template <class T>
inline constexpr int lanes = 16 / sizeof(T);  // numbers that move at once
template <class T>
inline constexpr int depth = row_bytes / sizeof(T);  // columns of own and other tokens in a stage

template <class T_, int rows_, int columns_>
struct Shape {
  using T = T_;
  static constexpr int rows = rows_, columns = columns_;
  static constexpr int threads = own_tokens / rows * 16;
  static constexpr int other_tokens = 16 * columns;
  static constexpr int tile_bytes = own_tokens * other_tokens * sizeof(T);
};
__device__ __forceinline__ int thread_x() { return threadIdx.x % 16; }
__device__ __forceinline__ int thread_y() { return threadIdx.x / 16; }

__host__ __device__ constexpr int rows_in_tile(int tokens, int level) { return level > 6 ? 1 : tokens >> level; }

// A CTA's shared memory: two stages, then a tile of probabilities or their gradients.
template <class Shape>
constexpr int stage_bytes(int levels) {
  const int rows = (level_base(own_tokens, levels) + level_base(Shape::other_tokens, levels)) * row_bytes;
  return rows < panel_bytes ? panel_bytes : (rows + 127) / 128 * 128;
}
template <class Shape>
constexpr int shared_bytes(int levels) {
  return 2 * stage_bytes<Shape>(levels) + Shape::tile_bytes;
}

__device__ __forceinline__ void load(float (&to)[2], const void* from) {
  const float2 value = *static_cast<const float2*>(from);
  to[0] = value.x, to[1] = value.y;
}
__device__ __forceinline__ void load(float (&to)[4], const void* from) {
  const float4 value = *static_cast<const float4*>(from);
  to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
}
__device__ __forceinline__ void load(double (&to)[2], const void* from) {
  const double2 value = *static_cast<const double2*>(from);
  to[0] = value.x, to[1] = value.y;
}
__device__ __forceinline__ void store_16(void* to, const float* from) {
  *static_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}
__device__ __forceinline__ void store_16(void* to, const double* from) {
  *static_cast<double2*>(to) = {from[0], from[1]};
}

// Positions of one sequence: those of its keys, [0, keys), and of its queries, [start, end).
struct Window {
  std::int64_t keys, start, end;
};
__device__ inline Window window_of(const AttentionForward& problem, std::int64_t batch) {
  std::int64_t keys = problem.length;
  if (problem.lengths) keys = max(std::int64_t(0), min(keys, problem.lengths[batch]));
  return {keys, problem.start, min(problem.start + problem.queries, keys)};
}

// Rows [begin, end) of one head of an array, stored as S. They are counted from position 0 on, where the array may have none.
template <class S>
struct Rows {
  const S* data;
  std::int64_t stride;
  std::int64_t begin, end;
};
template <class S>
__device__ Rows<S> key_rows(const Array& array, std::int64_t batch, std::int64_t head, const Window& window,
                            int level) {
  return {head_rows<const S>(array, batch, head), array.row_stride, 0, level_rows(window.keys, level)};
}
template <class S>
__device__ Rows<S> query_rows(const Array& array, std::int64_t batch, std::int64_t head, const Window& window,
                              int level) {
  const std::int64_t begin = window.start >> level;
  return {head_rows<const S>(array, batch, head) - begin * array.row_stride, array.row_stride, begin,
          level_rows(window.end, level)};
}

// Every array that a CTA reads by tiles, kept in shared memory.
template <class S>
struct Sources {
  Rows<S> own[max_levels], other[max_levels], own_value, other_value;
};
// by_query: own are the queries and others the keys. query_value: grad_out; in the forward pass, where nobody reads it, any.
template <bool by_query, class S>
__device__ void find_sources(Sources<S>& sources, const AttentionForward& problem, const Array& query_value,
                             std::int64_t batch, std::int64_t head, const Window& window) {
  const int level = threadIdx.x;
  const std::int64_t of_keys = key_head(problem, head);
  if (level < problem.levels) {
    const Rows<S> queries = query_rows<S>(problem.q[level], batch, head, window, level);
    const Rows<S> keys = key_rows<S>(problem.k[level], batch, of_keys, window, level);
    sources.own[level] = by_query ? queries : keys;
    sources.other[level] = by_query ? keys : queries;
  }
  if (level == 0) {
    const Rows<S> of_queries = query_rows<S>(query_value, batch, head, window, 0);
    const Rows<S> values = key_rows<S>(problem.v, batch, of_keys, window, 0);
    sources.own_value = by_query ? of_queries : values;
    sources.other_value = by_query ? values : of_queries;
  }
  __syncthreads();
}

// Starts copying `count` rows from `first` on, `pieces` times 16 bytes of T of each from `column` on, to place(row, piece);
// zeros outside. `aligned`: all 16-byte pieces of the array are.
template <class T, int threads, int pieces, class S, class Place>
__device__ __forceinline__ void copy_rows(const Rows<S>& rows, std::int64_t first, int count, int column, int width,
                                          bool aligned, const Place& place) {
  const int piece = threadIdx.x % pieces;
  const int left = min(lanes<T>, width - column - lanes<T> * piece);
  const std::int64_t begin = rows.begin - first, end = left > 0 ? rows.end - first : 0;  // zeros outside
  const S* from = rows.data + (first + threadIdx.x / pieces) * rows.stride + column + lanes<T> * piece;
  for (int row = threadIdx.x / pieces; row < count; row += threads / pieces, from += threads / pieces * rows.stride) {
    T* to = place(row, piece);
    const bool inside = row >= begin && row < end;
    if constexpr (std::is_same_v<S, T>) {
      if (aligned) {
        cp_async_16(to, inside ? from : rows.data + rows.begin * rows.stride,
                    inside ? left * static_cast<int>(sizeof(T)) : 0);
        continue;
      }
    }
#pragma unroll
    for (int lane = 0; lane < lanes<T>; ++lane) to[lane] = inside && lane < left ? static_cast<T>(from[lane]) : T(0);
  }
}

// Where a 16-byte piece of a row of a level lies in a stage. Threads side by side read rows that are 8 tokens apart:
// pieces change places so that those lie in different banks.
__device__ __forceinline__ int piece_offset(int base, int row, int level, int piece) {
  const int key = ((row << min(level, 3)) >> 3) & 7;
  return ((base + row) >> 1) * (2 * row_bytes) + (((((base + row) & 1) << 2) + piece) ^ key) * 16;
}

// Starts copying `depth` columns of `tokens` tokens of one level.
template <class Shape, class S>
__device__ __forceinline__ void copy_columns(unsigned char* to, const Rows<S>& rows, std::int64_t first, int tokens,
                                             int level, int column, int width, bool aligned) {
  using T = typename Shape::T;
  const int base = level_base(tokens, level);
  copy_rows<T, Shape::threads, row_bytes / 16>(
      rows, first >> level, rows_in_tile(tokens, level), column, width, aligned,
      [&](int row, int piece) { return reinterpret_cast<T*>(to + piece_offset(base, row, level, piece)); });
}

// Whole rows of `padded` numbers that a stage takes.
template <class Shape, int padded>
inline constexpr int panel_rows_of =
    std::min(panel_bytes / padded / static_cast<int>(sizeof(typename Shape::T)), Shape::other_tokens);

// Starts copying `count` whole rows as [count][padded].
template <class Shape, int padded, class S>
__device__ __forceinline__ void copy_panel(unsigned char* to, const Rows<S>& rows, std::int64_t first, int count,
                                           int width, bool aligned) {
  using T = typename Shape::T;
  copy_rows<T, Shape::threads, padded / lanes<T>>(rows, first, count, 0, width, aligned, [&](int row, int piece) {
    return reinterpret_cast<T*>(to) + row * padded + lanes<T> * piece;
  });
}

// A thread's `count` neighbouring rows of a level in a stage; they have places in common, as they lie in the same 8 tokens.
struct ThreadRows {
  const unsigned char* rows;
  int first_piece;

  __device__ __forceinline__ ThreadRows(const unsigned char* stage, int base, int row, int level)
      : rows(stage + ((base + row) >> 1) * (2 * row_bytes)), first_piece(piece_offset(base, row, level, 0) % 128) {}
  template <class T>
  __device__ __forceinline__ void load_piece(T (&to)[lanes<T>], int row, int piece) const {
    load(to, rows + row / 2 * (2 * row_bytes) + (first_piece ^ (row % 2 * row_bytes) ^ (piece * 16)));
  }
};

// sums[i][j] += Σ_k own[row i of y][k] · other[row j of x][k] for one level, over the columns of a stage.
template <class Shape, int rows, int columns>
__device__ __forceinline__ void add_products(typename Shape::T (&sums)[rows][columns], const unsigned char* own,
                                             const unsigned char* other, int level) {
  using T = typename Shape::T;
  const ThreadRows own_rows(own, level_base(own_tokens, level), (Shape::rows * thread_y()) >> level, level);
  const ThreadRows other_rows(other, level_base(Shape::other_tokens, level), (Shape::columns * thread_x()) >> level,
                              level);
#pragma unroll 1
  for (int piece = 0; piece < row_bytes / 16; ++piece) {
    T right[columns][lanes<T>];
#pragma unroll
    for (int j = 0; j < columns; ++j) other_rows.load_piece(right[j], j, piece);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      T left[lanes<T>];
      own_rows.load_piece(left, i, piece);
#pragma unroll
      for (int lane = 0; lane < lanes<T>; ++lane)
#pragma unroll
        for (int j = 0; j < columns; ++j) sums[i][j] += left[lane] * right[j][lane];
    }
  }
}

// The scores of a thread, level by level as long as their columns come in; those of levels beyond 2 are one number.
template <class Shape>
struct LevelScores {
  using T = typename Shape::T;
  static constexpr int rows = Shape::rows, columns = Shape::columns;
  T fine[rows][columns] = {}, pairs[rows / 2][columns / 2] = {}, fours[rows / 4][columns / 4] = {}, rest = 0;

  // weights: of the levels, with the scale in them.
  __device__ __forceinline__ void add(const unsigned char* stage, int levels, const T* weights, T scale) {
    const unsigned char* other = stage + level_base(own_tokens, levels) * row_bytes;
    add_products<Shape>(fine, stage, other, 0);
    if (levels > 1) add_products<Shape>(pairs, stage, other, 1);
    if (levels > 2) add_products<Shape>(fours, stage, other, 2);
    for (int level = 3; level < levels; ++level) {
      T sum[1][1] = {};
      add_products<Shape>(sum, stage, other, level);
      rest += weights[level] * scale * sum[0][0];
    }
  }
  // Σ of the levels by their weights, in `fine`.
  __device__ __forceinline__ void combine(int levels, const T* weights, T scale) {
    const T weight0 = weights[0] * scale;
    const T weight1 = levels > 1 ? weights[1] * scale : T(0), weight2 = levels > 2 ? weights[2] * scale : T(0);
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < columns; ++j)
        fine[i][j] = weight0 * fine[i][j] + (weight1 * pairs[i / 2][j / 2] + (weight2 * fours[i / 4][j / 4] + rest));
  }
};

// Starts copying `depth` columns of all levels of both sides, for LevelScores::add.
template <class Shape, class S>
__device__ __forceinline__ void copy_levels(unsigned char* stage, const Sources<S>& sources, int levels,
                                            std::int64_t first_own, std::int64_t first_other, int column, int width,
                                            bool aligned) {
  unsigned char* other = stage + level_base(own_tokens, levels) * row_bytes;
  for (int level = 0; level < levels; ++level) {
    copy_columns<Shape>(stage, sources.own[level], first_own, own_tokens, level, column, width, aligned);
    copy_columns<Shape>(other, sources.other[level], first_other, Shape::other_tokens, level, column, width, aligned);
  }
}

// The tile of probabilities or their gradients, [own][other], which only threads of the same row write and read.
template <class Shape>
struct Tile {
  using T = typename Shape::T;
  unsigned char* bytes;

  __device__ __forceinline__ T* piece(int row, int number) const {
    const int swapped = number ^ ((number >> 3) & 1) ^ ((thread_y() & 1) << 2);
    return reinterpret_cast<T*>(bytes + (row * (Shape::other_tokens / lanes<T>)+swapped) * 16);
  }
  // Scores of any level, `columns` beside each other.
  template <int rows, int columns>
  __device__ __forceinline__ void write(const T (&values)[rows][columns]) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < rows; ++i)
      if constexpr (columns % lanes<T> == 0) {
#pragma unroll
        for (int j = 0; j < columns; j += lanes<T>)
          store_16(piece(rows * thread_y() + i, (columns * thread_x() + j) / lanes<T>), &values[i][j]);
      } else {
#pragma unroll
        for (int j = 0; j < columns; ++j) {
          const int column = columns * thread_x() + j;
          piece(rows * thread_y() + i, column / lanes<T>)[column % lanes<T>] = values[i][j];
        }
      }
    __syncwarp();
  }
};

// Columns that a thread has of rows of `padded` numbers: neighbours as far as they move at once.
template <class T, int padded>
inline constexpr int together = padded / 16 < lanes<T> ? padded / 16 : lanes<T>;
template <class T, int padded>
__device__ __forceinline__ int column_of(int j) {
  constexpr int n = together<T, padded>;
  return j / n * (16 * n) + n * thread_x() + j % n;
}

// sums[i][j] += Σ_k tile[row i of y][first + k] · panel[k >> shift][column_of(j)] for k below `count`.
template <class Shape, int padded, int rows>
__device__ __forceinline__ void add_outer(typename Shape::T (&sums)[rows][padded / 16], Tile<Shape> tile, int first,
                                          const unsigned char* panel, int count, int shift = 0) {
  using T = typename Shape::T;
  constexpr int n = together<T, padded>, columns = padded / 16, at_once = columns < 8 ? columns : 8;
  const T* right_rows = reinterpret_cast<const T*>(panel) + n * thread_x();
#pragma unroll 1
  for (int k = 0; k < count; k += lanes<T>)
#pragma unroll
    for (int begin = 0; begin < columns; begin += at_once) {
      T right[lanes<T>][at_once / n][n];
#pragma unroll
      for (int lane = 0; lane < lanes<T>; ++lane)
#pragma unroll
        for (int j = 0; j < at_once / n; ++j)
          load(right[lane][j], right_rows + ((k + lane) >> shift) * padded + (begin / n + j) * 16 * n);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        T left[lanes<T>];
        load(left, tile.piece(rows * thread_y() + i, (first + k) / lanes<T>));
#pragma unroll
        for (int lane = 0; lane < lanes<T>; ++lane)
#pragma unroll
          for (int j = 0; j < at_once; ++j) sums[i][begin + j] += left[lane] * right[lane][j / n][j % n];
      }
    }
}

// Over the 16 threads that share rows; every one of them gets it.
template <class T>
__device__ T sum_of_row(T value) {
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}
template <class T>
__device__ T max_of_row(T value) {
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) value = max(value, __shfl_xor_sync(~0u, value, lane));
  return value;
}

__device__ inline float natural_exp(float x) { return __expf(x); }
__device__ inline double natural_exp(double x) { return exp(x); }

// Tiles lie at multiples of their size, wherever the queries start.
struct TileRange {
  std::int64_t first, count;
};
__host__ __device__ inline TileRange query_tiles(const AttentionForward& problem) {
  const std::int64_t first = problem.start / own_tokens;
  return {first, (problem.start + problem.queries + own_tokens - 1) / own_tokens - first};
}
__host__ __device__ inline TileRange key_tiles(const AttentionForward& problem) {
  return {0, (problem.length + own_tokens - 1) / own_tokens};
}

// A CTA works on one tile of one head of one sequence: blockIdx.x counts them all, tiles fastest, those with the most to
// do first.
struct Place {
  std::int64_t first, head, batch;
};
__device__ inline Place place_of_block(const AttentionForward& problem, const TileRange& tiles, bool last_first) {
  const std::int64_t all = blockIdx.x, tile = all % tiles.count;
  return {(tiles.first + (last_first ? tiles.count - 1 - tile : tile)) * own_tokens, all / tiles.count % problem.heads,
          all / tiles.count / problem.heads};
}
inline dim3 blocks_for(const AttentionForward& problem, const TileRange& tiles) {
  return grid_of(problem.batch * problem.heads * tiles.count);
}

}  // namespace hkt::kernels::cuda::plain
