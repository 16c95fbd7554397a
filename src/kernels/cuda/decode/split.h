// SPDX-License-Identifier: Apache-2.0
// How attention over cached keys is split: into chunks of keys, whose size depends on the shape of the queries alone, so that
// neither the batch nor the capacity nor the GPU changes the bits of a sequence. Each chunk leaves a partial result in the
// workspace; merge.h adds them up.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/launch.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda::decode {

// A chunk is made of spans. A span has whole rows of every level, so the levels of its scores depend on nothing outside it.
inline constexpr int span_shift = 7, span_keys = 1 << span_shift;
static_assert(span_keys >> (max_levels - 1) > 0);

// The rows of a key head are the queries of all its heads: row r is query r / group of head r % group of the group.
struct Split {
  int group;                    // heads that share a key head
  int rows;                     // of a key head
  int row_tiles;                // of so many rows as a kernel takes at once
  int chunk_shift, chunk_keys;  // log2, and the number of keys
  std::int64_t chunks;          // of the capacity
};

inline Split split_of(const AttentionExtend& problem, int tile_rows) {
  // A chunk has 16 keys for each row, so that partial results take a few percent of the bytes of keys and values, and their
  // memory does not grow with the product of rows and keys.
  constexpr int largest_shift = 30, rows_for_span = 8;
  Split split{};
  split.group = static_cast<int>(problem.heads / problem.key_heads);
  split.rows = static_cast<int>(problem.queries * split.group);
  split.row_tiles = ceil_divide(split.rows, tile_rows);
  int spans_shift = 0;
  while (span_shift + spans_shift < largest_shift && (std::int64_t{rows_for_span} << spans_shift) < split.rows)
    ++spans_shift;
  split.chunk_shift = span_shift + spans_shift;
  split.chunk_keys = 1 << split.chunk_shift;
  split.chunks = ceil_divide<std::int64_t>(problem.length, split.chunk_keys);
  return split;
}

// What is known of every row of every chunk in the workspace: the largest score and the sum of exponentials relative to it as a
// pair, and the sum of values weighted by these exponentials.
template <class T>
struct Partials {
  T* stats;
  T* sums;
  int pitch;  // of sums: the values' width, rounded up to whole vectors of four

  __host__ __device__ static int pitch_of(const AttentionExtend& problem) { return (problem.value_width + 3) / 4 * 4; }
  static std::int64_t count(const AttentionExtend& problem, const Split& split) {
    return problem.batch * problem.key_heads * split.rows * split.chunks;
  }
  static std::int64_t stats_bytes(const AttentionExtend& problem, const Split& split) {
    return ceil_divide<std::int64_t>(count(problem, split) * 2 * sizeof(T), 256) * 256;
  }
  static std::int64_t bytes(const AttentionExtend& problem, const Split& split) {
    return stats_bytes(problem, split) + count(problem, split) * pitch_of(problem) * static_cast<int>(sizeof(T));
  }
  static Partials in(void* workspace, const AttentionExtend& problem, const Split& split) {
    char* begin = static_cast<char*>(workspace);
    return {reinterpret_cast<T*>(begin), reinterpret_cast<T*>(begin + stats_bytes(problem, split)), pitch_of(problem)};
  }
};

// The place of a row's first chunk among the partial results; the others follow it.
__device__ __forceinline__ std::int64_t first_partial(const AttentionExtend& problem, const Split& split,
                                                      std::int64_t batch, std::int64_t key_head, int row) {
  return ((batch * problem.key_heads + key_head) * split.rows + row) * split.chunks;
}

// Chunks of a sequence with so many keys.
__device__ __forceinline__ int chunks_of(const Split& split, std::int64_t end) {
  return static_cast<int>((end + split.chunk_keys - 1) >> split.chunk_shift);
}

__device__ __forceinline__ std::int64_t end_of(const AttentionExtend& problem, std::int64_t batch) {
  return max(std::int64_t(0), min(problem.length, problem.ends[batch]));
}

// What a warp or CTA works on: a chunk of keys and a tile of rows.
struct Item {
  int batch, key_head, row_tile, chunk;
  std::int64_t end;
};

// The items of all sequences in a row, without chunks beyond the ends, found in rising order by whole warps.
class Items {
 public:
  __device__ Items(const AttentionExtend& problem, const Split& split) : problem_(problem), split_(split) {}

  // Whether there is an item `index`, and which.
  __device__ bool find(std::int64_t index, Item& item) {
    constexpr unsigned everyone = ~0u;
    const int lane = threadIdx.x % 32;
    const std::int64_t items_of_chunk = problem_.key_heads * split_.row_tiles;
    for (; first_ < problem_.batch; first_ += 32) {
      const std::int64_t end = first_ + lane < problem_.batch ? end_of(problem_, first_ + lane) : 0;
      std::int64_t until = chunks_of(split_, end) * items_of_chunk;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const std::int64_t below = __shfl_up_sync(everyone, until, distance);
        if (lane >= distance) until += below;
      }
      const unsigned later = __ballot_sync(everyone, before_ + until > index);
      if (later != 0) {
        const int found = __ffs(later) - 1;
        const std::int64_t previous = __shfl_sync(everyone, until, max(found - 1, 0));
        item.end = __shfl_sync(everyone, end, found);
        item.batch = first_ + found;
        place(item, static_cast<int>(index - before_ - (found > 0 ? previous : 0)));
        return true;
      }
      before_ += __shfl_sync(everyone, until, 31);
    }
    return false;
  }

 private:
  __device__ void place(Item& item, int index) const {
    const int chunks = chunks_of(split_, item.end);
    item.row_tile = index % split_.row_tiles;
    item.chunk = index / split_.row_tiles % chunks;
    item.key_head = index / split_.row_tiles / chunks;
  }

  const AttentionExtend& problem_;
  const Split& split_;
  int first_ = 0;            // the first sequence that may have the next item
  std::int64_t before_ = 0;  // items of the sequences before it
};

// Kept coarse scores: there are some, and the coarsest level that this step computes; the next one is read.
__host__ __device__ __forceinline__ bool keeps_scores(const AttentionExtend& problem) {
  return problem.levels > 1 && problem.queries == 1 && problem.coarse[1].data != nullptr;
}
__device__ __forceinline__ int top_level(const AttentionExtend& problem, std::int64_t end) {
  const int last = problem.levels - 1;
  if (!keeps_scores(problem) || problem.refresh || end == 1) return last;
  return min(last, __ffsll(end - 1) - 1);
}

// The row of q[level] for a query, or −1 if it counts as zeros.
__device__ __forceinline__ std::int64_t query_row(const AttentionExtend& problem, int level, std::int64_t end,
                                                  std::int64_t query) {
  const std::int64_t first = end - problem.queries, position = first + query;
  const std::int64_t row = (position >> level) - (first >> level);
  return position >= 0 && row < problem.query_rows[level] ? row : -1;
}

}  // namespace hkt::kernels::cuda::decode
