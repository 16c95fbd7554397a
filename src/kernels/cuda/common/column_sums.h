// SPDX-License-Identifier: Apache-2.0
// Sums over the parts that the CTAs of another kernel have left, always in the same order.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda {

// A warp of columns and as many threads for each of them, so that few sums wait for each other.
inline constexpr int column_sum_columns = 32;
inline constexpr int column_sum_threads = column_sum_columns * 32;

// Called by all threads of a CTA of column_sum_threads: the first of them have Σ over parts of partials[part, column] for `column`,
// one each; others must not use it.
struct ColumnSum {
  int column;
  bool is_mine;
  float sum;
};
__device__ __forceinline__ ColumnSum column_sum(const float* partials, int parts, int columns) {
  __shared__ float shared[32][column_sum_columns];
  const int place = threadIdx.x % column_sum_columns, first = threadIdx.x / column_sum_columns;
  const int column = blockIdx.x * column_sum_columns + place;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int part = first; part < parts; part += 32)
      sum += partials[static_cast<std::int64_t>(part) * columns + column];
  }
  shared[first][place] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) sum += shared[i][place];
  return {column, first == 0 && column < columns, sum};
}

}  // namespace hkt::kernels::cuda
