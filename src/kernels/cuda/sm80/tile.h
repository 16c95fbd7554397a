// Tiles of all levels in shared memory, and the order in which their rows meet in a warp's fragments.
//
// A warp works on 32 tokens as rows of its score tile: 16 pairs, the even tokens in one 16-row block and the odd ones in
// another, so that place p of both belongs to row p of a coarse block. Tokens as columns stay in order: the thread that
// owns columns 2c and 2c + 1 of block j needs the coarse column 4j + c, so coarse rows are read permuted in eights (place
// 2c + b of block i is row 8i + 4b + c, for fine block 2i + b). All coarse levels are computed at the resolution of
// level 1, with rows of the coarser ones read several times.
#pragma once

#include "hkt/kernels.h"
#include "plan.h"
#include "tensor_core.h"

namespace hkt::kernels::cuda::sm80 {

// Rows of `width` numbers; chunks of 16 bytes are swapped within a row so that eight rows, whether neighbours or every
// second one, meet different banks.
template <int width>
struct Swizzled {
  static constexpr int chunks = width / 8;
  std::uint32_t base;

  __device__ __forceinline__ std::uint32_t at(int row, int chunk) const {
    const int key = width == 32 ? (row >> 1) & 3 : ((row >> 1) ^ (row << 2)) & 7;
    return base + row * (width * 2) + ((chunk ^ key) << 4);
  }
  // Another array, which begins where this one's row lies; its rows are swapped by their own numbers.
  __device__ __forceinline__ Swizzled from_row(int row) const { return {base + row * (width * 2)}; }
};

__device__ inline std::int64_t level_length(std::int64_t length, int level) {
  return (length + (std::int64_t(1) << level) - 1) >> level;
}

// Where a block works: tile `first` of a head of a sequence.
struct Place {
  std::int64_t first, head, batch, length;  // length: valid tokens of the sequence
};

template <class T>
__device__ const T* rows_of(const Array& array, const Place& place) {
  return static_cast<const T*>(array.data) + place.batch * array.batch_stride + place.head * array.head_stride;
}

// Starts copying `count` rows from `first` on; zeros beyond `rows` and beyond `width`.
template <class T, int padded_width, int threads>
__device__ __forceinline__ void copy_rows(Swizzled<padded_width> to, int to_row, const T* from, std::int64_t stride,
                                          std::int64_t first, std::int64_t rows, int count, int width) {
  constexpr int chunks = Swizzled<padded_width>::chunks;
  for (int i = threadIdx.x; i < count * chunks; i += threads) {
    const int row = i / chunks, chunk = i % chunks;
    const bool inside = first + row < rows && 8 * chunk < width;
    copy_16(to.at(to_row + row, chunk), inside ? from + (first + row) * stride + 8 * chunk : from, inside);
  }
}

// The same for all levels of a tile of `tokens` tokens.
template <class T, int padded_width, int threads>
__device__ __forceinline__ void copy_levels(Swizzled<padded_width> to, const Array (&arrays)[max_levels],
                                            const Place& place, std::int64_t first, std::int64_t length, int levels,
                                            int tokens, int width) {
  for (int level = 0; level < levels; ++level)
    copy_rows<T, padded_width, threads>(to, level_base(tokens, level), rows_of<T>(arrays[level], place),
                                        arrays[level].row_stride, first >> level, level_length(length, level),
                                        max(tokens >> level, 1), width);
}

// Fragment addresses. Left operands: 16 rows; lane i asks for row i % 16 and one of two chunks. Right operands: two blocks
// of 8 columns; lane i asks for row i % 8 of block i / 16 and one of two chunks.
__device__ __forceinline__ int left_row() { return threadIdx.x % 16; }
__device__ __forceinline__ int left_chunk() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_block() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_row() { return threadIdx.x % 8; }
__device__ __forceinline__ int right_chunk() { return threadIdx.x / 8 % 2; }
__device__ __forceinline__ int permuted(int place) { return 4 * (place % 2) + place / 2; }

// sums += left(16 pairs from `pair`) · right(pairs from `column`)ᵀ for one coarse level; `blocks` blocks of 8 columns,
// permuted in eights.
template <class T, int width, int blocks>
__device__ __forceinline__ void add_coarse(float (&sums)[blocks][4], Swizzled<width> left, int left_base, int pair,
                                           Swizzled<width> right, int right_base, int column, int level) {
  const int row = left_base + ((pair + left_row()) >> (level - 1));
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t a[4];
    load_matrices(a, left.at(row, 2 * k + left_chunk()));
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      const int block = blocks == 1 ? 0 : n + right_block();
      const int other = right_base + ((column + 8 * block + permuted(right_row())) >> (level - 1));
      std::uint32_t b[4];
      load_matrices(b, right.at(other, 2 * k + right_chunk()));
      multiply<T>(sums[n], a, b[0], b[1]);
      if constexpr (blocks > 1) multiply<T>(sums[n + 1], a, b[2], b[3]);
    }
  }
}

// Level 0: sums[parity] += left(even or odd tokens of 32 from `token`) · right(tokens from `column`)ᵀ.
template <class T, int width, int blocks>
__device__ __forceinline__ void add_fine(float (&sums)[2][blocks][4], Swizzled<width> left, int token,
                                         Swizzled<width> right, int column) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t a[2][4];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
      load_matrices(a[parity], left.at(token + 2 * left_row() + parity, 2 * k + left_chunk()));
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, right.at(column + 8 * (n + right_block()) + right_row(), 2 * k + right_chunk()));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        multiply<T>(sums[parity][n], a[parity], b[0], b[1]);
        multiply<T>(sums[parity][n + 1], a[parity], b[2], b[3]);
      }
    }
  }
}

// The coarse score of fine block n, for the fragment's row half (0: row r, 1: row r + 8).
template <int blocks>
__device__ __forceinline__ float coarse_of(const float (&coarse)[blocks][4], int n, int half) {
  return coarse[n / 2][2 * half + n % 2];
}

}  // namespace hkt::kernels::cuda::sm80
