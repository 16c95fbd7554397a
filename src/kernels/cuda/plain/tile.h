// Tiles of 64 × 64 scores for the plain kernels, 256 threads each: thread (x, y) of 16 × 16 holds rows 4y to 4y + 3 and
// columns 4x to 4x + 3. Those are exactly 2 × 2 scores of level 1 and one of level 2, so adding levels and summing
// gradients over them needs no other thread; levels beyond 2 are computed at the resolution of level 2.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "../element.h"
#include "../launch.h"
#include "hkt/kernels.h"

namespace hkt::kernels::cuda::plain {

inline constexpr int tile = 64;
inline constexpr int threads = 256;
inline constexpr int depth = 32;      // of the panels that a product reads from shared memory
inline constexpr int pitch = 64 + 4;  // of a panel; the padding spreads the banks

// One sequence of one head of an array, stored as S; the kernels compute in T.
template <class S>
struct Rows {
  const S* data;
  std::int64_t stride;
  std::int64_t count;
};
template <class S>
__device__ Rows<S> rows_of(const Array& array, std::int64_t batch, std::int64_t head, std::int64_t count) {
  return {static_cast<const S*>(array.data) + batch * array.batch_stride + head * array.head_stride, array.row_stride,
          count};
}
__device__ inline std::int64_t level_rows(std::int64_t length, int level) {
  return (length + (std::int64_t(1) << level) - 1) >> level;
}

// How many rows of a level a tile has in shared memory, and which one row `r` of them is.
__device__ inline int resolution(int level) { return level >= 2 ? tile / 4 : tile >> level; }
__device__ inline std::int64_t level_row(std::int64_t first, int level, int r) {
  return level <= 2 ? (first >> level) + r : ((first >> 2) + r) >> (level - 2);
}

// panel[k][r] = rows[level_row(first, level, r)][column + k]; zero outside.
template <class S, class T>
__device__ void load_transposed(T (*panel)[pitch], const Rows<S>& rows, std::int64_t first, int level, int column,
                                int width) {
  const int count = resolution(level);
  for (int i = threadIdx.x; i < count * depth; i += threads) {
    const int r = i / depth, k = i % depth;
    const std::int64_t row = level_row(first, level, r);
    const bool inside = row < rows.count && column + k < width;
    panel[k][r] = inside ? static_cast<T>(rows.data[row * rows.stride + column + k]) : T(0);
  }
}

// panel[k][c] = rows[level_row(first, level, r + k)][column + c]; zero outside.
template <class S, class T>
__device__ void load_straight(T (*panel)[pitch], const Rows<S>& rows, std::int64_t first, int level, int r, int column,
                              int width) {
  for (int i = threadIdx.x; i < depth * tile; i += threads) {
    const int k = i / tile, c = i % tile;
    const std::int64_t row = level_row(first, level, r + k);
    const bool inside = r + k < resolution(level) && row < rows.count && column + c < width;
    panel[k][c] = inside ? static_cast<T>(rows.data[row * rows.stride + column + c]) : T(0);
  }
}

// sums[i][j] += Σ_k a[k][rows · y + i] · b[k][columns · x + j]
template <int rows, int columns, class T>
__device__ void add_product(T (&sums)[rows][columns], const T (*a)[pitch], const T (*b)[pitch], int count) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 4
  for (int k = 0; k < count; ++k) {
    T left[rows], right[columns];
#pragma unroll
    for (int i = 0; i < rows; ++i) left[i] = a[k][rows * y + i];
#pragma unroll
    for (int j = 0; j < columns; ++j) right[j] = b[k][columns * x + j];
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < columns; ++j) sums[i][j] += left[i] * right[j];
  }
}

// What a kernel computes in: float32 for the small types.
template <class S>
using Arithmetic = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class T>
struct Panels {
  T a[depth][pitch];
  T b[depth][pitch];
};

// What a block keeps in shared memory.
template <class T>
struct Shared {
  Panels<T> panels;
  T values[tile][pitch];  // probabilities or their gradients as [column][row]
};
template <class T>
__device__ Shared<T>& shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return *reinterpret_cast<Shared<T>*>(bytes);
}

// scores[i][j] of one level between two tiles, spread over the thread's 4 × 4 places times `weight`.
template <int size, class S, class T>
__device__ void add_level(T (&scores)[4][4], Panels<T>& shared, const Rows<S>& a, std::int64_t first_a,
                          const Rows<S>& b, std::int64_t first_b, int level, int width, T weight) {
  T sums[size][size] = {};
  for (int column = 0; column < width; column += depth) {
    __syncthreads();
    load_transposed(shared.a, a, first_a, level, column, width);
    load_transposed(shared.b, b, first_b, level, column, width);
    __syncthreads();
    add_product(sums, shared.a, shared.b, min(depth, width - column));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[i][j] += weight * sums[i * size / 4][j * size / 4];
}

// Σ_l weights[l] · <a(l), b(l)> for the tile at rows first_a of a and first_b of b.
template <class S, class T>
__device__ void add_scores(T (&scores)[4][4], Panels<T>& shared, const AttentionForward& problem,
                           const Array (&a)[max_levels], std::int64_t first_a, const Array (&b)[max_levels],
                           std::int64_t first_b, std::int64_t batch, std::int64_t head) {
  const T* weights = static_cast<const T*>(problem.weights) + head * problem.levels;
  for (int level = 0; level < problem.levels; ++level) {
    const std::int64_t count = level_rows(problem.length, level);
    const Rows<S> rows_a = rows_of<S>(a[level], batch, head, count);
    const Rows<S> rows_b = rows_of<S>(b[level], batch, head, count);
    const T weight = weights[level] * T(problem.scale);
    if (level == 0)
      add_level<4>(scores, shared, rows_a, first_a, rows_b, first_b, level, problem.width, weight);
    else if (level == 1)
      add_level<2>(scores, shared, rows_a, first_a, rows_b, first_b, level, problem.width, weight);
    else
      add_level<1>(scores, shared, rows_a, first_a, rows_b, first_b, level, problem.width, weight);
  }
}

__device__ inline std::int64_t valid_length(const AttentionForward& problem, std::int64_t batch) {
  if (!problem.lengths) return problem.length;
  const std::int64_t length = problem.lengths[batch];
  return length < 0 ? 0 : length > problem.length ? problem.length : length;
}

// Sums over the 16 threads that share rows, or columns x of them; every one of them gets it.
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

// A block works on one tile of one head of one sequence: blockIdx.x counts them all, tiles fastest.
struct Place {
  std::int64_t first, head, batch;
};
__device__ inline Place place_of_block(const AttentionForward& problem) {
  const std::int64_t tiles = (problem.length + tile - 1) / tile;
  const std::int64_t all = blockIdx.x;
  return {all % tiles * tile, all / tiles % problem.heads, all / tiles / problem.heads};
}
inline dim3 blocks_for(const AttentionForward& problem) {
  return dim3(static_cast<unsigned>(problem.batch * problem.heads * ceil_divide<std::int64_t>(problem.length, tile)));
}

// kernel<chunks> for the number of 64-column chunks that `width` takes.
template <class Launch>
void for_chunks(int width, const Launch& start) {
  if (width <= tile) return start(std::integral_constant<int, 1>{});
  if (width <= 2 * tile) return start(std::integral_constant<int, 2>{});
  start(std::integral_constant<int, 4>{});
}

}  // namespace hkt::kernels::cuda::plain
