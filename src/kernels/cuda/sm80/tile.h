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
#include "common/swizzle.h"
#include "kernels/attention.h"
#include "sm80/plan.h"

namespace hkt::kernels::cuda::sm80 {

// The queries of a sequence, by position, and how many positions it has: queries from there on are padding.
struct Window {
  int first, end;
  int length;
};
__device__ inline Window window_of(const AttentionForward& problem, std::int64_t batch) {
  const std::int64_t length = problem.lengths ? min(problem.length, problem.lengths[batch]) : problem.length;
  return {static_cast<int>(problem.start), static_cast<int>(problem.start + problem.queries),
          static_cast<int>(max(std::int64_t(0), length))};
}
// Against caches it begins before position 0 where there are more queries than positions.
__device__ inline Window window_of(const AttentionExtend& problem, std::int64_t batch) {
  const int loaded = static_cast<int>(max(std::int64_t(0), min(problem.length, problem.ends[batch])));
  const int end = __shfl_sync(~0u, loaded, 0);  // so that the compiler knows it to be the same in all lanes
  return {end - static_cast<int>(problem.queries), end, end};
}
// Rows of a level of its queries that are not padding.
__device__ inline int query_row_count(const AttentionForward&, const Window& window, int level) {
  return max(0, level_rows(min(window.end, window.length), level) - (window.first >> level));
}
__device__ inline int query_row_count(const AttentionExtend& problem, const Window& window, int level) {
  return min(static_cast<int>(problem.query_rows[level]), level_rows(window.end, level) - (window.first >> level));
}

// Where a CTA works: the tile of queries or keys from position `first` on, of a head of a sequence.
struct Place {
  int first;
  std::int64_t head, key_head, batch;
  int length;  // valid positions of the sequence
};
__device__ inline Place place_of(const AttentionForward& problem, int first, std::int64_t batch, std::int64_t head,
                                 int length) {
  const unsigned group = static_cast<unsigned>(problem.heads) / static_cast<unsigned>(problem.key_heads);
  return {first, head, static_cast<unsigned>(head) / group, batch, length};
}

template <class T>
__device__ T* rows_of(const Array& array, const Place& place) {
  return head_rows<T>(array, place.batch, place.head);
}

// The rows of a head that are copied over and over, kept in shared memory. From `count` on they are padding.
template <class T>
struct alignas(16) Source {
  const T* rows;
  int stride, count;
};
static_assert(sizeof(Source<bfloat16>) * (max_levels + 1) == source_bytes);
// All levels of an array of queries or keys, and another array after them, which has as many rows as level 0. count(level):
// the rows of a level.
template <class T, class Count>
__device__ void find_sources(Source<T>* sources, const Array (&levels)[max_levels], const Array& last, int level_count,
                             std::int64_t batch, std::int64_t head, const Count& count) {
  const int i = threadIdx.x;
  if (i > level_count) return;
  const Array& array = i < level_count ? levels[i] : last;
  sources[i] = {head_rows<const T>(array, batch, head), static_cast<int>(array.row_stride),
                count(i < level_count ? i : 0)};
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

// Starts copying `count` rows from `first` on; zeros from the source's count on and beyond `width`. Where rows may lie before
// row 0, they are zeros too; this is for the first tile of a window, and slower.
template <class T, int padded_width, int threads, bool may_be_before = false>
__device__ __forceinline__ void copy_rows(Swizzled<padded_width> to, int to_row, const Source<T>& source, int first,
                                          int count, int width) {
  constexpr int vectors = padded_width / 8, at_once = threads / vectors;
  constexpr int most = max_copies<padded_width, threads>, unrolled = may_be_before ? 1 : most;
  using Rows = Swizzled<padded_width>;
  const int begin = threadIdx.x / vectors, vector = threadIdx.x % vectors;
  const int inside = (source.count - first) & -(8 * vector < width);  // of a conditional, the compiler makes a branch
  const int pitch = 2 * source.stride;                                // products of 32 bits suffice
  const char* from = reinterpret_cast<const char*>(source.rows + 8 * vector) + std::int64_t(first + begin) * pitch;
  const std::int64_t step = std::int64_t(pitch) * at_once;
  std::uint32_t target = to.at(to_row + begin, vector);
#pragma unroll unrolled
  for (int i = 0; i < most; ++i) {
    const int row = begin + i * at_once;
    if (i * at_once >= count) break;
    if (count % at_once == 0 || row < count)
      cp_async_16(target, from, row < inside && (!may_be_before || row >= -first));
    target ^= (Rows::key(i * at_once) ^ Rows::key((i + 1) * at_once)) << 4;  // to_row is a multiple of more rows
    target += at_once * Rows::pitch;
    from += step;
  }
}

// The same for all levels of a tile of `tokens` tokens from position `first` on; row 0 of the sources has position `origin`.
template <class T, int padded_width, int threads, int fixed, bool may_be_before = false>
__device__ __forceinline__ void copy_levels(Swizzled<padded_width> to, const Source<T>* sources, int first, int origin,
                                            int levels, int tokens, int width) {
  for_levels<may_be_before ? 0 : fixed>(0, levels, [&](int level) {
    copy_rows<T, padded_width, threads, may_be_before>(to, level_base(tokens, level), sources[level],
                                                       (first >> level) - (origin >> level), max(tokens >> level, 1),
                                                       width);
  });
}

// The row of a block of eight coarse rows that is read at a place.
__device__ __forceinline__ int permuted(int place) { return 4 * (place % 2) + place / 2; }

// sums = left · rightᵀ; the lanes: of 16 rows of the left operand, and of the right operand's first two blocks, each two
// further blocks having its own. Of a single block, a lane asks for one of four vectors (lane / 8), for two steps at once.
template <class T, int width, int blocks>
__device__ __forceinline__ void small_scores(float (&sums)[blocks][4], Lane<width> left,
                                             const Lane<width> (&right)[(blocks + 1) / 2]) {
  std::uint32_t b[4];
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t a[4];
    ldmatrix_x4(a, left.at(0, 2 * k));
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      if (blocks > 1 || k % 2 == 0) ldmatrix_x4(b, right[n / 2].at(0, 2 * k));
      const int first = blocks > 1 ? 0 : k % 2 * 2;
      mma<T>(sums[n], a, b[first], b[first + 1], k == 0);
      if constexpr (blocks > 1) mma<T>(sums[n + 1], a, b[2], b[3], k == 0);
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
      : lanes{{array, first + 2 * left_row(), left_vector()}, {array, first + 2 * left_row() + 1, left_vector()}} {}
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
