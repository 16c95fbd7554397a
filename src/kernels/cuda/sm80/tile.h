// SPDX-License-Identifier: Apache-2.0
// Tiles of all levels in shared memory, and the order in which their rows meet in a warp's fragments.
//
// A warp works on 32 tokens as rows of its score tile: 16 pairs, the even tokens in one 16-row block and the odd ones in
// another, so that place p of both belongs to row p of a coarse block. Tokens as columns stay in order: the thread that
// owns columns 2c and 2c + 1 of block j needs the coarse column 4j + c, so coarse rows are read permuted in eights (place
// 2c + b of block i is row 8i + 4b + c, for fine block 2i + b). So it is for all levels in the forward pass; in the backward
// pass for level 1, and the scores of those beyond are made apart and handed over in shared memory.
#pragma once

#include "common/cp_async.h"
#include "common/mma.h"
#include "common/shared_memory.h"
#include "kernels/attention.h"
#include "sm80/plan.h"

namespace hkt::kernels::cuda::sm80 {

// Rows of `width` numbers; chunks of 16 bytes are swapped within a row so that eight rows, whether neighbours or every
// second one, meet different banks. The key of a row is that of every row 16 further.
template <int width>
struct Swizzled {
  static constexpr int chunks = width / 8, pitch = width * 2;
  std::uint32_t base;  // a multiple of the pitch

  __device__ __forceinline__ std::uint32_t at(int row, int chunk) const {
    const int key = width == 16 ? (row >> 2) & 1 : width == 32 ? (row >> 1) & 3 : ((row >> 1) ^ (row << 2)) & 7;
    return base + (row * pitch + ((chunk ^ key) << 4));
  }
  // Another array, which begins where this one's row lies; its rows are swapped by their own numbers.
  __device__ __forceinline__ Swizzled from_row(int row) const { return {base + row * pitch}; }
};

// What a lane reads of an array: its first chunk, from which others lie at distances that are known when compiling.
// Rows: multiples of 16. Chunks: a number whose bits the first chunk's number does not have.
template <int width>
struct Lane {
  std::uint32_t first;

  __device__ __forceinline__ Lane(Swizzled<width> array, int row, int chunk) : first(array.at(row, chunk)) {}
  __device__ __forceinline__ std::uint32_t at(int rows, int chunks) const {
    return (first ^ (chunks << 4)) + rows * Swizzled<width>::pitch;
  }
};

// Where a block works: tile `first` of a head of a sequence.
struct Place {
  int first;
  std::int64_t head, batch;
  int length;  // valid tokens of the sequence
};
__device__ inline int valid_length(const AttentionForward& problem, std::int64_t batch) {
  const std::int64_t length = problem.lengths ? min(problem.length, problem.lengths[batch]) : problem.length;
  return static_cast<int>(max(std::int64_t(0), length));
}

template <class T>
__device__ T* rows_of(const Array& array, const Place& place) {
  return head_rows<T>(array, place.batch, place.head);
}

// The rows of a head that are copied over and over, kept in shared memory.
template <class T>
struct alignas(16) Source {
  const T* rows;
  int stride;
};
static_assert(sizeof(Source<bfloat16>) * (max_levels + 1) == source_bytes);
// All levels of an array of queries or keys, and another array after them.
template <class T>
__device__ void find_sources(Source<T>* sources, const Array (&levels)[max_levels], const Array& last, int level_count,
                             const Place& place) {
  const int i = threadIdx.x;
  if (i < level_count) sources[i] = {rows_of<const T>(levels[i], place), static_cast<int>(levels[i].row_stride)};
  if (i == level_count) sources[i] = {rows_of<const T>(last, place), static_cast<int>(last.row_stride)};
}

// Calls body(level) for levels from `first` on. `fixed`: their number if it is known when compiling, else 0; then the calls
// stand one after the other, free to overlap.
template <int fixed, class Body>
__device__ __forceinline__ void for_levels(int first, int levels, const Body& body) {
  if constexpr (fixed > 0) {
#pragma unroll
    for (int level = 0; level < fixed; ++level)
      if (level >= first) body(level);
  } else {
#pragma unroll 1
    for (int level = first; level < levels; ++level) body(level);
  }
}

// Copies of a thread for the largest tile, of 128 rows.
template <int padded_width, int threads>
inline constexpr int max_copies = 128 * (padded_width / 8) / threads;

// Starts copying `count` rows from `first` on; zeros beyond `rows` and beyond `width`.
template <class T, int padded_width, int threads>
__device__ __forceinline__ void copy_rows(Swizzled<padded_width> to, int to_row, const Source<T>& source, int first,
                                          int rows, int count, int width) {
  constexpr int chunks = padded_width / 8, at_once = threads / chunks;
  static_assert(at_once % 8 == 0);
  const int begin = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
  const int inside = 8 * chunk < width ? rows - first : 0;
  const unsigned pitch = 2 * static_cast<unsigned>(source.stride);  // at most 2^31: products of 32 bits suffice
  const char* from =
      reinterpret_cast<const char*>(source.rows + 8 * chunk) + std::uint64_t(unsigned(first + begin)) * pitch;
  const std::uint64_t step = std::uint64_t(pitch) * at_once;
  std::uint32_t target = to.at(to_row + begin, chunk);
#pragma unroll
  for (int i = 0; i < max_copies<padded_width, threads>; ++i) {
    const int row = begin + i * at_once;
    if (i * at_once >= count) break;
    if (count % at_once == 0 || row < count) cp_async_16(target, from, row < inside);
    if constexpr (at_once % 16 != 0 && padded_width > 32) target ^= 64;  // half of the way to the same key
    target += at_once * Swizzled<padded_width>::pitch;
    from += step;
  }
}

// The same for all levels of a tile of `tokens` tokens.
template <class T, int padded_width, int threads, int fixed>
__device__ __forceinline__ void copy_levels(Swizzled<padded_width> to, const Source<T>* sources, int first, int length,
                                            int levels, int tokens, int width) {
  for_levels<fixed>(0, levels, [&](int level) {
    copy_rows<T, padded_width, threads>(to, level_base(tokens, level), sources[level], first >> level,
                                        level_rows(length, level), max(tokens >> level, 1), width);
  });
}

// Fragment addresses. Left operands: 16 rows; lane i asks for row i % 16 and one of two chunks. Right operands: two blocks
// of 8 columns; lane i asks for row i % 8 of block i / 16 and one of two chunks.
__device__ __forceinline__ int left_row() { return threadIdx.x % 16; }
__device__ __forceinline__ int left_chunk() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_block() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_row() { return threadIdx.x % 8; }
__device__ __forceinline__ int right_chunk() { return threadIdx.x / 8 % 2; }
__device__ __forceinline__ int permuted(int place) { return 4 * (place % 2) + place / 2; }

// sums = left · rightᵀ; the lanes: of 16 rows of the left operand, and of the right operand's first two blocks, each two
// further blocks having its own.
template <class T, int width, int blocks>
__device__ __forceinline__ void small_scores(float (&sums)[blocks][4], Lane<width> left,
                                             const Lane<width> (&right)[blocks / 2]) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t a[4];
    ldmatrix_x4(a, left.at(0, 2 * k));
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, right[n / 2].at(0, 2 * k));
      mma<T>(sums[n], a, b[0], b[1], k == 0);
      mma<T>(sums[n + 1], a, b[2], b[3], k == 0);
    }
  }
}

// Level 0: sums[parity] += left(even or odd tokens of 32) · right(tokens)ᵀ, or = if they are `fresh`. left(k, parity, a)
// gives the fragment of step k; the lane is of the right operand's first two blocks. also(k): what else is to be issued
// with step k.
struct Nothing {
  __device__ __forceinline__ void operator()(int) const {}
};
template <class T, bool fresh, int width, int blocks, class Left, class Also = Nothing>
__device__ __forceinline__ void fine_scores(float (&sums)[2][blocks][4], const Left& left, Lane<width> right,
                                            const Also& also = {}) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    also(k);
    std::uint32_t a[2][4];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) left(k, parity, a[parity]);
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, right.at(8 * n, 2 * k));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        mma<T>(sums[parity][n], a[parity], b[0], b[1], fresh && k == 0);
        mma<T>(sums[parity][n + 1], a[parity], b[2], b[3], fresh && k == 0);
      }
    }
  }
}
// Its left operand: the warp's 32 rows of an array from `first` on, read anew for each product,
template <int width>
struct ReadRows {
  Lane<width> lanes[2];

  __device__ __forceinline__ ReadRows(Swizzled<width> array, int first)
      : lanes{{array, first + 2 * left_row(), left_chunk()}, {array, first + 2 * left_row() + 1, left_chunk()}} {}
  __device__ __forceinline__ void operator()(int k, int parity, std::uint32_t (&a)[4]) const {
    ldmatrix_x4(a, lanes[parity].at(0, 2 * k));
  }
};
// or with the fragments of the first `kept` steps in registers.
template <int width, int kept>
struct KeptRows {
  ReadRows<width> read;
  std::uint32_t fragments[kept > 0 ? kept : 1][2][4];

  __device__ __forceinline__ KeptRows(Swizzled<width> array, int first) : read(array, first) {
#pragma unroll
    for (int k = 0; k < kept; ++k)
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) read(k, parity, fragments[k][parity]);
  }
  __device__ __forceinline__ void operator()(int k, int parity, std::uint32_t (&a)[4]) const {
    if (k >= kept) return read(k, parity, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[k][parity][i];
  }
};

// The coarse score of fine block n, for the fragment's row half (0: row r, 1: row r + 8).
template <int blocks>
__device__ __forceinline__ float coarse_of(const float (&coarse)[blocks][4], int n, int half) {
  return coarse[n / 2][2 * half + n % 2];
}

}  // namespace hkt::kernels::cuda::sm80
