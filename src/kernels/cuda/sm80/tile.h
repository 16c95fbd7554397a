// Tiles of all levels in shared memory, and the order in which their rows meet in a warp's fragments.
//
// A warp works on 32 tokens as rows of its score tile: 16 pairs, the even tokens in one 16-row block and the odd ones in
// another, so that place p of both belongs to row p of a coarse block. Tokens as columns stay in order: the thread that
// owns columns 2c and 2c + 1 of block j needs the coarse column 4j + c, so coarse rows are read permuted in eights (place
// 2c + b of block i is row 8i + 4b + c, for fine block 2i + b). Scores of all coarse levels are computed at the resolution
// of level 1, with rows of the coarser ones read several times.
#pragma once

#include "hkt/kernels.h"
#include "plan.h"
#include "tensor_core.h"

namespace hkt::kernels::cuda::sm80 {

// Rows of `width` numbers; chunks of 16 bytes are swapped within a row so that eight rows, whether neighbours or every
// second one, meet different banks. The key of a row is that of every row 16 further.
template <int width>
struct Swizzled {
  static constexpr int chunks = width / 8, pitch = width * 2;
  std::uint32_t base;  // a multiple of the pitch

  __device__ __forceinline__ std::uint32_t at(int row, int chunk) const {
    const int key = width == 16   ? (row >> 2) & 1
                    : width == 32 ? (row >> 1) & 3
                                  : ((row >> 1) ^ (row << 2)) & 7;
    return base + row * pitch + ((chunk ^ key) << 4);
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

__device__ inline std::int64_t level_length(std::int64_t length, int level) {
  return (length + (std::int64_t(1) << level) - 1) >> level;
}

// Where a block works: tile `first` of a head of a sequence.
struct Place {
  std::int64_t first, head, batch, length;  // length: valid tokens of the sequence
};
__device__ inline std::int64_t valid_length(const AttentionForward& problem, std::int64_t batch) {
  if (!problem.lengths) return problem.length;
  return max(std::int64_t(0), min(problem.length, problem.lengths[batch]));
}

template <class T>
__device__ T* rows_of(const Array& array, const Place& place) {
  return static_cast<T*>(array.data) + place.batch * array.batch_stride + place.head * array.head_stride;
}

// The rows of a head that are copied over and over, kept in shared memory.
template <class T>
struct Source {
  const T* rows;
  std::int64_t stride;
};
static_assert(sizeof(Source<bfloat16>) * (max_levels + 1) == source_bytes);
// All levels of an array of queries or keys, and another array after them.
template <class T>
__device__ void find_sources(Source<T>* sources, const Array (&levels)[max_levels], const Array& last, int level_count,
                             const Place& place) {
  const int i = threadIdx.x;
  if (i < level_count) sources[i] = {rows_of<const T>(levels[i], place), levels[i].row_stride};
  if (i == level_count) sources[i] = {rows_of<const T>(last, place), last.row_stride};
}

// Starts copying `count` rows from `first` on; zeros beyond `rows` and beyond `width`.
template <class T, int padded_width, int threads>
__device__ __forceinline__ void copy_rows(Swizzled<padded_width> to, int to_row, const Source<T>& source,
                                          std::int64_t first, std::int64_t rows, int count, int width) {
  constexpr int chunks = padded_width / 8, at_once = threads / chunks;
  static_assert(at_once % 8 == 0);
  const int begin = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
  const int inside = 8 * chunk < width ? static_cast<int>(min(std::int64_t(count), rows - first)) : 0;
  const T* from = source.rows + (first + begin) * source.stride + 8 * chunk;
  std::uint32_t target = to.at(to_row + begin, chunk);
  const std::int64_t step = at_once * source.stride;
#pragma unroll 1
  for (int row = begin; row < count; row += at_once, from += step) {
    copy_16(target, from, row < inside);
    if constexpr (at_once % 16 != 0 && padded_width > 32) target ^= 64;  // half of the way to the same key
    target += at_once * Swizzled<padded_width>::pitch;
  }
}

// The same for all levels of a tile of `tokens` tokens.
template <class T, int padded_width, int threads>
__device__ __forceinline__ void copy_levels(Swizzled<padded_width> to, const Source<T>* sources, std::int64_t first,
                                            std::int64_t length, int levels, int tokens, int width) {
  for (int level = 0; level < levels; ++level)
    copy_rows<T, padded_width, threads>(to, level_base(tokens, level), sources[level], first >> level,
                                        level_length(length, level), max(tokens >> level, 1), width);
}

// Fragment addresses. Left operands: 16 rows; lane i asks for row i % 16 and one of two chunks. Right operands: two blocks
// of 8 columns; lane i asks for row i % 8 of block i / 16 and one of two chunks.
__device__ __forceinline__ int left_row() { return threadIdx.x % 16; }
__device__ __forceinline__ int left_chunk() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_block() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_row() { return threadIdx.x % 8; }
__device__ __forceinline__ int right_chunk() { return threadIdx.x / 8 % 2; }
__device__ __forceinline__ int permuted(int place) { return 4 * (place % 2) + place / 2; }

// sums = left(16 pairs from `pair`) · right(pairs from `column`)ᵀ for one coarse level; `blocks` blocks of 8 columns,
// permuted in eights.
template <class T, int width, int blocks>
__device__ __forceinline__ void coarse_scores(float (&sums)[blocks][4], Swizzled<width> left, int left_base, int pair,
                                              Swizzled<width> right, int right_base, int column, int level) {
  const int coarser = level - 1;
  const Lane<width> left_lane(left, left_base + ((pair + left_row()) >> coarser), left_chunk());
  if constexpr (blocks == 1) {  // one load of the right operand for two steps of the inner dimension
    const Lane<width> lane(right, right_base + ((column + permuted(right_row())) >> coarser), threadIdx.x / 8 % 4);
#pragma unroll
    for (int k = 0; k < width / 16; k += 2) {
      std::uint32_t a[2][4], b[4];
      load_matrices(a[0], left_lane.at(0, 2 * k));
      load_matrices(a[1], left_lane.at(0, 2 * k + 2));
      load_matrices(b, lane.at(0, 2 * k));
      multiply<T>(sums[0], a[0], b[0], b[1], k == 0);
      multiply<T>(sums[0], a[1], b[2], b[3]);
    }
  } else {
    std::uint32_t right_first[blocks / 2];
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      const int row = column + 8 * (n + right_block()) + permuted(right_row());
      right_first[n / 2] = right.at(right_base + (row >> coarser), right_chunk());
    }
#pragma unroll
    for (int k = 0; k < width / 16; ++k) {
      std::uint32_t a[4];
      load_matrices(a, left_lane.at(0, 2 * k));
#pragma unroll
      for (int n = 0; n < blocks; n += 2) {
        std::uint32_t b[4];
        load_matrices(b, right_first[n / 2] ^ (2 * k << 4));
        multiply<T>(sums[n], a, b[0], b[1], k == 0);
        multiply<T>(sums[n + 1], a, b[2], b[3], k == 0);
      }
    }
  }
}

// Level 0: sums[parity] += left(even or odd tokens of 32) · right(tokens)ᵀ, or = if they are `fresh`. The lanes: of the
// left operand's even and odd tokens (row 2 · left_row() + parity of the warp's), and of the right operand's first two
// blocks.
template <class T, bool fresh, int width, int blocks>
__device__ __forceinline__ void fine_scores(float (&sums)[2][blocks][4], const Lane<width> (&left)[2],
                                            Lane<width> right) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t a[2][4];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) load_matrices(a[parity], left[parity].at(0, 2 * k));
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, right.at(8 * n, 2 * k));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        multiply<T>(sums[parity][n], a[parity], b[0], b[1], fresh && k == 0);
        multiply<T>(sums[parity][n + 1], a[parity], b[2], b[3], fresh && k == 0);
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
