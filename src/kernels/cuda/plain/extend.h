// SPDX-License-Identifier: Apache-2.0
// Attention over cached keys for every element type, width and stride, without tensor cores, in float64 or float32. A CTA takes
// a chunk of keys of a key head and one row or up to 8. Thread j has key j of a span in the scores and a column of the values.
#pragma once

#include "common/element.h"
#include "common/problem.h"
#include "decode/merge.h"
#include "decode/split.h"
#include "families.h"

namespace hkt::kernels::cuda::plain {

using decode::end_of;
using decode::Item;
using decode::Items;
using decode::Partials;
using decode::span_keys;
using decode::Split;

namespace extend_tile {
inline constexpr int threads = span_keys, max_rows = 8, depth = 32;  // depth: columns of keys in shared memory
inline constexpr int values = max_width / threads;                   // columns of the output that a thread has
}  // namespace extend_tile

// Flushes subnormal numbers, which natural_exp of tile.h does not.
__device__ __forceinline__ float flushing_exp(float x) { return exp2_fast(x * log2_e); }
__device__ __forceinline__ double flushing_exp(double x) { return exp(x); }

template <class T, int rows>
struct ExtendMemory {
  T keys[span_keys][extend_tile::depth + 1];  // later sums of the threads that share a column
  T queries[extend_tile::depth][rows];
  T fine[rows][span_keys];  // scores, then exponentials
  T odd[rows][span_keys / 2], even[rows][span_keys / 4];
  T largest[rows], total[rows], shrink[rows];
};

template <class S, int tile_rows>
class ExtendChunk {
 public:
  using T = Arithmetic<S>;
  using Memory = ExtendMemory<T, tile_rows>;

  __device__ ExtendChunk(const AttentionExtend& problem, const Split& split, const Item& item, Memory& memory)
      : problem_(problem), split_(split), item_(item), memory_(memory) {
    first_row_ = item.row_tile * tile_rows;
    row_count_ = min(tile_rows, split.rows - first_row_);
    if (threadIdx.x < tile_rows) memory.largest[threadIdx.x] = -T(INFINITY), memory.total[threadIdx.x] = 0;
  }

  // The scores of a span, level by level, the coarsest first; then their softmax and the values.
  __device__ void add_span(std::int64_t first) {
    const int top = decode::top_level(problem_, item_.end);
    if (top + 1 < problem_.levels) read_kept(first, top + 1);
    for (int level = top; level >= 0; --level) add_level(first, level);
    softmax();
    add_values(first);
  }

  __device__ void write(const Partials<T>& partials) {
    sum_shared_columns();
#pragma unroll
    for (int r = 0; r < tile_rows; ++r) {
      if (r >= row_count_) break;
      const std::int64_t partial =
          decode::first_partial(problem_, split_, item_.batch, item_.key_head, first_row_ + r) + item_.chunk;
      if (threadIdx.x == 0) {
        partials.stats[2 * partial] = memory_.largest[r];
        partials.stats[2 * partial + 1] = memory_.total[r];
      }
      if (part() > 0) continue;
#pragma unroll
      for (int i = 0; i < extend_tile::values; ++i)
        if (column(i) < problem_.value_width) partials.sums[partial * partials.pitch + column(i)] = out_[i][r];
    }
  }

 private:
  static constexpr int depth = extend_tile::depth, threads = extend_tile::threads;

  __device__ std::int64_t head_of(int r) const {
    return std::int64_t(item_.key_head) * split_.group + (first_row_ + r) % split_.group;
  }
  __device__ int query_of(int r) const { return (first_row_ + r) / split_.group; }
  __device__ T& scores(int level, int r, int m) {
    return level == 0 ? memory_.fine[r][m] : level % 2 ? memory_.odd[r][m] : memory_.even[r][m];
  }
  __device__ T* kept(int level, int r, std::int64_t m) const {
    return head_rows<T>(problem_.coarse[level], item_.batch, head_of(r)) + m;
  }

  __device__ void read_kept(std::int64_t first, int level) {
    const int m = threadIdx.x;
    const std::int64_t row = (first >> level) + m;
    if (m < span_keys >> level && row < level_rows(item_.end, level))
      for (int r = 0; r < row_count_; ++r) scores(level, r, m) = *kept(level, r, row);
    __syncthreads();
  }

  // Some columns of the rows of keys and of the queries, in T; zeros where there are none.
  __device__ void copy_columns(std::int64_t first, int level, int column) {
    const int lane = threadIdx.x % depth, from = column + lane;
    const bool inside = from < problem_.width;
    const Array &k = problem_.k[level], &q = problem_.q[level];
    const S* keys = head_rows<const S>(k, item_.batch, item_.key_head);
    const std::int64_t end = level_rows(item_.end, level);
#pragma unroll 8
    for (int m = threadIdx.x / depth; m < span_keys >> level; m += threads / depth) {
      const std::int64_t row = (first >> level) + m;
      memory_.keys[m][lane] = inside && row < end ? static_cast<T>(keys[row * k.row_stride + from]) : T(0);
    }
    for (int r = threadIdx.x / depth; r < tile_rows; r += threads / depth) {
      const std::int64_t row = r < row_count_ ? decode::query_row(problem_, level, item_.end, query_of(r)) : -1;
      memory_.queries[lane][r] =
          inside && row >= 0 ? static_cast<T>(head_rows<const S>(q, item_.batch, head_of(r))[row * q.row_stride + from])
                             : T(0);
    }
  }

  __device__ void add_level(std::int64_t first, int level) {
    const int m = threadIdx.x, count = span_keys >> level;
    T sums[tile_rows] = {};
    for (int column = 0; column < problem_.width; column += depth) {
      copy_columns(first, level, column);
      __syncthreads();
      if (m < count)
        for (int i = 0; i < depth; ++i) {
          const T key = memory_.keys[m][i];
#pragma unroll
          for (int r = 0; r < tile_rows; ++r) sums[r] += memory_.queries[i][r] * key;
        }
      __syncthreads();
    }
    const std::int64_t row = (first >> level) + m;
#pragma unroll
    for (int r = 0; r < tile_rows; ++r) {
      if (m >= count || r >= row_count_) break;
      const T weight = static_cast<const T*>(problem_.weights)[head_of(r) * problem_.levels + level];
      T score = weight * T(problem_.scale) * sums[r];
      if (level + 1 < problem_.levels) score += scores(level + 1, r, m / 2);
      if (level == 0 && row > item_.end - problem_.queries + query_of(r)) score = -T(INFINITY);
      scores(level, r, m) = score;
      if (level > 0 && decode::keeps_scores(problem_) && row < level_rows(item_.end, level))
        *kept(level, r, row) = score;
    }
    __syncthreads();
  }

  // A warp takes every fourth row.
  __device__ void softmax() {
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < row_count_; r += threads / 32) {
      T largest = memory_.largest[r], total = 0;
      for (int m = lane; m < span_keys; m += 32) largest = max(largest, memory_.fine[r][m]);
      for (int distance = 16; distance > 0; distance /= 2)
        largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
      const T base = largest == -T(INFINITY) ? T(0) : largest;
      for (int m = lane; m < span_keys; m += 32) {
        const T exponential = flushing_exp(memory_.fine[r][m] - base);
        memory_.fine[r][m] = exponential;
        total += exponential;
      }
      for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(~0u, total, distance);
      if (lane == 0) {
        const T shrink = flushing_exp(memory_.largest[r] - base);
        memory_.shrink[r] = shrink;
        memory_.total[r] = memory_.total[r] * shrink + total;
        memory_.largest[r] = largest;
      }
    }
    __syncthreads();
  }

  // Narrow values: several threads have the same column, each its part of the keys.
  __device__ int span_of_columns() const {
    int span = threads;
    while (span / 2 >= problem_.value_width) span /= 2;
    return span;
  }
  __device__ int parts() const { return threads / span_of_columns(); }
  __device__ int part() const { return threadIdx.x / span_of_columns(); }
  __device__ int column(int i) const { return threadIdx.x % span_of_columns() + i * threads; }

  __device__ void add_values(std::int64_t first) {
    const Array& v = problem_.v;
    const int count = static_cast<int>(min(std::int64_t(span_keys), item_.end - first)), step = parts();
#pragma unroll
    for (int i = 0; i < extend_tile::values; ++i) {
      if (column(i) >= problem_.value_width) continue;
      const S* values = head_rows<const S>(v, item_.batch, item_.key_head) + first * v.row_stride + column(i);
#pragma unroll
      for (int r = 0; r < tile_rows; ++r)
        if (r < row_count_) out_[i][r] *= memory_.shrink[r];
#pragma unroll 8
      for (int key = part(); key < count; key += step) {
        const T value = static_cast<T>(values[key * v.row_stride]);
#pragma unroll
        for (int r = 0; r < tile_rows; ++r)
          if (r < row_count_) out_[i][r] += memory_.fine[r][key] * value;
      }
    }
    __syncthreads();
  }

  // Adds up, in order, the sums of the threads that share a column.
  __device__ void sum_shared_columns() {
    if (parts() == 1) return;
    T(*sums)[extend_tile::depth + 1] = memory_.keys;
#pragma unroll
    for (int r = 0; r < tile_rows; ++r) sums[threadIdx.x][r] = out_[0][r];
    __syncthreads();
    if (part() == 0)
      for (int other = 1; other < parts(); ++other)
#pragma unroll
        for (int r = 0; r < tile_rows; ++r) out_[0][r] += sums[threadIdx.x + other * span_of_columns()][r];
  }

  const AttentionExtend& problem_;
  const Split& split_;
  const Item& item_;
  Memory& memory_;
  int first_row_, row_count_;
  T out_[extend_tile::values][tile_rows] = {};
};

template <class S, int rows>
__global__ void __launch_bounds__(extend_tile::threads)
    extend_kernel(const __grid_constant__ AttentionExtend problem, const __grid_constant__ Split split,
                  const Partials<Arithmetic<S>> partials) {
  extern __shared__ __align__(128) unsigned char bytes[];
  auto& memory = *reinterpret_cast<ExtendMemory<Arithmetic<S>, rows>*>(bytes);
  decode::launch_dependents();
  Items items(problem, split);
  Item item;
  for (std::int64_t index = blockIdx.x; items.find(index, item); index += gridDim.x) {
    const std::int64_t begin = std::int64_t(item.chunk) * split.chunk_keys,
                       end = min(item.end, begin + split.chunk_keys);
    ExtendChunk<S, rows> chunk(problem, split, item, memory);
    for (std::int64_t first = begin; first < end; first += span_keys) chunk.add_span(first);
    chunk.write(partials);
    __syncthreads();
  }
}

inline int tile_rows_of(const AttentionExtend& problem) {
  return problem.queries * problem.heads == problem.key_heads ? 1 : extend_tile::max_rows;
}

template <class S, int rows>
void start_extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  using T = Arithmetic<S>;
  constexpr int ctas_per_sm = 8;
  const Split split = decode::split_of(problem, rows);
  const auto partials = Partials<T>::in(workspace, problem, split);
  const std::int64_t items = problem.batch * problem.key_heads * split.row_tiles * split.chunks;
  if (items > 0)
    launch(extend_kernel<S, rows>, grid_of(std::min<std::int64_t>(items, ctas_per_sm * device.sm_count)),
           extend_tile::threads, sizeof(ExtendMemory<T, rows>), device.stream, problem, split, partials);
  decode::start_merge<S, T>(problem, device, split, partials);
}

template <class S>
void start_extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  if (tile_rows_of(problem) == 1) return start_extend<S, 1>(problem, device, workspace);
  start_extend<S, extend_tile::max_rows>(problem, device, workspace);
}

}  // namespace hkt::kernels::cuda::plain
