// Levels from 3 on, on Hopper: rows of all of them in one tile in shared memory.
//
// Blocks of 8 x 8 scores share one score of level 3. What coarser levels add to it is small work, for which the products
// of a warp suffice, at the resolution of level 3: their operands repeat the rows of the coarser levels.
#pragma once

#include "../sm80/tensor_core.h"
#include "hkt/kernels.h"

namespace hkt::kernels::cuda::sm90 {

// A tile that has `count` rows of level 3 has half as many of level 4 after them, and so on. Where a level begins; that
// of the level after the last is the number of rows.
__host__ __device__ constexpr int first_deep_row(int count, int level) {
  return 2 * count - (2 * count >> (level - 3));
}
// The level of a row. The first digit that is 0 tells, of as many as the tile's rows need.
template <int count>
__device__ __forceinline__ int deep_level(int row) {
  static_assert(count == 8 || count == 16);
  return 3 + __clz(~(row << (count == 16 ? 27 : 28)));
}

// A row's 16 bytes; rows of `width` elements, swizzled so that eight rows' can be read at once.
template <int width>
__device__ __forceinline__ int deep_offset(int row, int chunk) {
  return row * width * 2 + (chunk ^ (width >= 64 ? row % 8 : row / 2 % 4)) * 16;
}

// Copies the rows that belong to 8 · count rows of level 0, from `first` on; zeros beyond an array's rows and width.
// For `threads` threads.
template <int width, int count, int threads, int arrays_count>
__device__ __forceinline__ void copy_deep_rows(std::uint32_t to, const Array (&arrays)[arrays_count], int batch,
                                               int head, int levels, int length, int used_width, int first,
                                               int thread) {
  constexpr int chunks = width / 8;
  const int chunk = thread % chunks;
#pragma unroll 1
  for (int place = thread / chunks; place < first_deep_row(count, levels); place += threads / chunks) {
    const int level = deep_level<count>(place);
    const int row = (first >> level) + place - first_deep_row(count, level);
    const Array& array = arrays[level - 3];
    const char* const from = static_cast<const char*>(array.data) +
                             2 * (batch * array.batch_stride + head * array.head_stride + row * array.row_stride);
    copy_16(to + deep_offset<width>(place, chunk), from + chunk * 16,
            row <= (length - 1) >> level && chunk * 8 < used_width);
  }
}

}  // namespace hkt::kernels::cuda::sm90
