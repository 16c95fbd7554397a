// Forward on Hopper, levels from 3 on, for widths up to 64: from rows in shared memory.
#pragma once

#include "forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int deep_rows = 32;  // that 128 rows of level 0 have, at most

// A row's 16 bytes; rows of `width` elements, swizzled so that eight rows' can be read at once.
template <int width>
__device__ __forceinline__ int deep_offset(int row, int chunk) {
  return row * width * 2 + (chunk ^ (width >= 64 ? row % 8 : row / 2 % 4)) * 16;
}

// copy_threads threads: copies the rows that belong to 128 rows of level 0, from `first` on; zeros beyond an array's rows
// and width.
template <int width>
__device__ __forceinline__ void copy_deep_rows(std::uint32_t to, const Array (&arrays)[max_levels - 3],
                                               const ForwardParameters& p, const Item& item, int first, int thread) {
  constexpr int chunks = width / 8;
  const int chunk = thread % chunks;
#pragma unroll 1
  for (int place = thread / chunks; place < first_deep_row(16, p.levels); place += copy_threads / chunks) {
    const int level = deep_level(place);
    const int row = (first >> level) + place - first_deep_row(16, level);
    const Array& array = arrays[level - 3];
    copy_16(to + deep_offset<width>(place, chunk), head_data(array, item) + 2 * row * array.row_stride + chunk * 16,
            row <= (p.length - 1) >> level && chunk * 8 < p.width);
  }
}

// A warp: the sums of 16 queries and of two times 8 keys, in accumulators, from rows in shared memory. The scores of
// levels from 4 on change hands at `exchange`.
template <class T, int width>
__device__ __forceinline__ void make_deep_sums(float (&sums)[2][4], std::uint32_t queries, std::uint32_t keys,
                                               std::uint32_t exchange, const ForwardParameters& p, const Item& item) {
  const int lane = threadIdx.x % 32, r = lane / 4;
  const auto multiply = [&](float (&product)[4], int query, int key) {
#pragma unroll
    for (int i = 0; i < width / 32; ++i) {
      std::uint32_t b[4];
      sm80::load_matrices(b, keys + deep_offset<width>(key, 4 * i + lane / 8));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        std::uint32_t a[4];
        sm80::load_matrices(a, queries + deep_offset<width>(query, 4 * i + 2 * k + lane / 16));
        sm80::multiply<T>(product, a, b[2 * k], b[2 * k + 1], i == 0 && k == 0);
      }
    }
  };
  const bool has_coarser = p.levels > 4;
  if (has_coarser) {
    const int last = first_deep_row(16, p.levels) - 1;  // in place of rows that there are not
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float product[4] = {};
      if (n == 0 || p.levels > 5) multiply(product, min(16 + lane % 16, last), min(16 + 8 * n + lane % 8, last));
      const float c = coefficient(p, item, deep_level(16 + 8 * n + r));
      store_coarser_deep(exchange, n, c * product[2 * n], c * product[2 * n + 1], lane);
    }
    __syncwarp();
  }
  const float c3 = coefficient(p, item, 3);
#pragma unroll
  for (int n = 0; n < 2; ++n) {  // halves of the keys
    float product[4];
    multiply(product, lane % 16, 8 * n + lane % 8);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float add = has_coarser ? coarser_deep_sum(exchange, h, n, lane) : 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) sums[n][2 * h + e] = fmaf(c3, product[2 * h + e], add);
    }
  }
  __syncwarp();
}

__device__ __forceinline__ void store_deep_sums(std::uint32_t to, const float (&sums)[2][4]) {
  to += threadIdx.x % 32 / 4 * deep_row + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) store_float(to + i / 2 % 2 * 8 * deep_row + i % 2 * 32 + i / 4 * 16, sums[i / 4][i % 4]);
}

}  // namespace hkt::kernels::cuda::sm90
