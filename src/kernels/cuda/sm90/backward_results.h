// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: results, from accumulators to the rows of arrays.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

// Half h of an accumulator's rows to the array's row; the thread has columns 2c, 2c + 1 of each eight.
template <class T, int count>
__device__ __forceinline__ void write_row(T* row, const float (&sums)[count], int h, int c, int width, float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; ++j)
    if (8 * j < width)
      *reinterpret_cast<std::uint32_t*>(row + 8 * j + 2 * c) =
          pack<T>(factor * sums[4 * j + 2 * h], factor * sums[4 * j + 2 * h + 1]);
}

// As write_row, 16 bytes at a time: the four lanes of a row exchange what they have of four blocks of eight columns, so
// that each has one of them. Nothing is written from column `width` on.
template <class T, int count>
__device__ __forceinline__ void write_chunks(T* row, const float (&sums)[count], int h, int c, int width,
                                             float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; j += 4) {
    std::uint32_t x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      x[k] = pack<T>(factor * sums[4 * (j + k) + 2 * h], factor * sums[4 * (j + k) + 2 * h + 1]);
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
      const bool upper = (c & bit) != 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if ((k & bit) != 0) continue;
        const std::uint32_t other = __shfl_xor_sync(~0u, upper ? x[k] : x[k + bit], bit);
        (upper ? x[k] : x[k + bit]) = other;
      }
    }
    if (8 * (j + c) < width) *reinterpret_cast<uint4*>(row + 8 * (j + c)) = make_uint4(x[0], x[1], x[2], x[3]);
  }
}

// Zeros for the rows of the block's keys.
template <class T>
__device__ __forceinline__ void clear_rows(const Array& array, const BackwardParameters& p, const BackwardWork& work,
                                           int level) {
  const int chunks = p.width / 8;
  const int first = work.key_tile * (backward_keys >> level);
  const int rows = min(backward_keys >> level, level_rows(p, level) - first);
  for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x)
    *reinterpret_cast<uint4*>(row_of<T>(array, work, first + i / chunks) + i % chunks * 8) = make_uint4(0, 0, 0, 0);
}

}  // namespace hkt::kernels::cuda::sm90
