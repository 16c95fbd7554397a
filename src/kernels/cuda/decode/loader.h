// SPDX-License-Identifier: Apache-2.0
// The steps of a warp and their copies to shared memory, some steps ahead of the products.
//
// Every warp is on its own: it walks over items, spans of an item and levels of a span, coarsest first. While it computes with
// the step of one stage, those of the other stages are on their way.
//
// Words of the decode kernels:
//   item     what a warp works on: a chunk of the keys of a key head, and a tile of up to 16 rows of queries (split.h)
//   chunk    keys with one partial result in the workspace; neither batch nor capacity nor GPU changes which (split.h)
//   span     128 keys of a chunk: whole rows of every level
//   step     what is copied at once: some rows of keys of a coarse level of a span, or half as many keys of level 0 with their
//            values, or kept scores
//   stage    one of a few places in shared memory, each for a step
//   vector   16 bytes of a row, which a lane copies or reads at once
//   factors  for each row of a tile, the weight that its head gives to a level
//   kept     coarse scores of an earlier token (hkt::decode), which are read in place of the keys that they came from
#pragma once

#include "common/cp_async.h"
#include "common/problem.h"
#include "common/swizzle.h"
#include "decode/split.h"

namespace hkt::kernels::cuda::decode {

inline constexpr int max_warps = 8, stages = 3, tile_rows = 16;
// A step of level 0; 8 KB of keys and values, 16 KB for the widest.
template <int width>
inline constexpr int step_keys = width <= 32   ? 64
                                 : width <= 64 ? 32
                                               : 16;

struct Step {
  Item item;
  int span;   // its first key
  int level;  // −1: no step
  int first;  // row of the level in the span
  bool kept;  // whether this is a step of kept scores
};

// Shared memory of a warp, in bytes. A stage has the rows of a step and, for the first step of a level in a span, its queries.
// Scores of odd and of even levels are float rows of a span; a level is computed from the next coarser one.
struct Layout {
  int queries, stage_bytes, odd_scores, even_scores, factors, steps, end;
};
inline constexpr int odd_pitch = span_keys / 2 + 4, even_pitch = span_keys / 4 + 4;  // spread over the banks
template <int width>
__host__ __device__ constexpr Layout layout_of(int rows) {
  constexpr int row_bytes = 2 * width;
  Layout at{};
  at.queries = 2 * step_keys<width> * row_bytes;
  at.stage_bytes = at.queries + rows * row_bytes;
  at.odd_scores = stages * at.stage_bytes;
  at.even_scores = at.odd_scores + rows * odd_pitch * 4;
  at.factors = at.even_scores + rows * even_pitch * 4;
  at.steps = at.factors + stages * tile_rows * 4;
  at.end = (at.steps + stages * static_cast<int>(sizeof(Step)) + 511) / 512 * 512;
  return at;
}

template <int width>
class WarpMemory {
 public:
  // rows: of the largest tile of rows.
  __device__ WarpMemory(unsigned char* memory, int rows) : at_(layout_of<width>(rows)) {
    memory_ = memory + threadIdx.x / 32 * at_.end;
    address_ = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory_));
  }
  __device__ Swizzled<width> rows(int stage) const { return {address_ + stage * at_.stage_bytes}; }
  __device__ Swizzled<width> queries(int stage) const { return {address_ + stage * at_.stage_bytes + at_.queries}; }
  __device__ float* kept(int stage) const { return reinterpret_cast<float*>(memory_ + stage * at_.stage_bytes); }
  __device__ float* scores(int level) const {
    return reinterpret_cast<float*>(memory_ + (level % 2 ? at_.odd_scores : at_.even_scores));
  }
  __device__ float* factors(int stage) const {
    return reinterpret_cast<float*>(memory_ + at_.factors) + stage * tile_rows;
  }
  __device__ Step& step(int stage) const { return reinterpret_cast<Step*>(memory_ + at_.steps)[stage]; }

 private:
  Layout at_;
  unsigned char* memory_;
  std::uint32_t address_;
};
__device__ __forceinline__ int score_pitch(int level) { return level % 2 ? odd_pitch : even_pitch; }

// Starts copying `count` rows; zeros for those that are not `inside` and beyond `columns`.
template <class T, int width, int max_count>
__device__ __forceinline__ void copy_rows(Swizzled<width> to, int to_row, const T* rows, std::int64_t stride,
                                          int inside, int count, int columns) {
  constexpr int vectors = width / 8, at_once = 32 / vectors;
  const int begin = threadIdx.x % 32 / vectors, vector = threadIdx.x % vectors;
  const T* from = rows + begin * stride + 8 * vector;
  if (8 * vector >= columns) inside = 0;
#pragma unroll
  for (int i = 0; i < max_count / at_once; ++i) {
    const int row = begin + i * at_once;
    if (i * at_once >= count) break;
    cp_async_16(to.at(to_row + row, vector), from, row < inside);
    from += at_once * stride;
  }
}

template <class T, int width>
class Loader {
 public:
  __device__ Loader(const AttentionExtend& problem, const Split& split, const WarpMemory<width>& memory)
      : problem_(problem), split_(split), memory_(memory), items_(problem, split) {
    next_index_ = threadIdx.x / 32 * gridDim.x + blockIdx.x;  // few items: on as many SMs as possible
    next_item();
  }

  // Starts the copies of the next step, if there is one.
  __device__ __forceinline__ void load(int stage) {
    if (threadIdx.x % 32 == 0) memory_.step(stage) = step_;
    if (step_.level >= 0) {
      if (step_.kept)
        copy_kept(stage);
      else
        copy_step(stage);
      advance();
    }
    cp_async_commit();
  }

 private:
  static constexpr int keys = step_keys<width>;

  __device__ int first_row() const { return (step_.span >> step_.level) + step_.first; }
  __device__ int rows_left() const { return level_rows(static_cast<int>(step_.item.end), step_.level) - first_row(); }
  __device__ int rows_of_tile() const { return min(tile_rows, split_.rows - tile_rows * step_.item.row_tile); }
  __device__ std::int64_t head_of(int row) const {
    return std::int64_t(step_.item.key_head) * split_.group + (tile_rows * step_.item.row_tile + row) % split_.group;
  }

  __device__ __forceinline__ void copy_step(int stage) {
    const Item& item = step_.item;
    const Swizzled<width> to = memory_.rows(stage);
    const int level = step_.level, row = first_row(), inside = rows_left();
    const Array& k = problem_.k[level];
    const T* from = head_rows<const T>(k, item.batch, item.key_head) + row * k.row_stride;
    if (step_.first == 0) copy_queries(stage);
    if (level == 0) {
      const T* values = head_rows<const T>(problem_.v, item.batch, item.key_head) + row * problem_.v.row_stride;
      copy_rows<T, width, keys>(to, 0, from, k.row_stride, inside, keys, problem_.width);
      copy_rows<T, width, keys>(to, keys, values, problem_.v.row_stride, inside, keys, problem_.value_width);
    } else {
      const int count = max(16, (span_keys >> level) - step_.first);
      copy_rows<T, width, 2 * keys>(to, 0, from, k.row_stride, inside, count, problem_.width);
    }
  }

  __device__ __forceinline__ void copy_queries(int stage) {
    constexpr int vectors = width / 8, at_once = 32 / vectors;
    const int level = step_.level, count = rows_of_tile(), lane = threadIdx.x % 32, vector = lane % vectors;
    const Swizzled<width> to = memory_.queries(stage);
    for (int row = lane / vectors; row < count; row += at_once) {
      const int query = (tile_rows * step_.item.row_tile + row) / split_.group;
      const std::int64_t from = query_row(problem_, level, step_.item.end, query);
      const Array& q = problem_.q[level];
      const bool inside = from >= 0 && 8 * vector < problem_.width;
      const T* source = head_rows<const T>(q, step_.item.batch, head_of(row));
      cp_async_16(to.at(row, vector), inside ? source + from * q.row_stride + 8 * vector : source, inside);
    }
    if (lane < count)
      cp_async_4(memory_.factors(stage) + lane,
                 static_cast<const float*>(problem_.weights) + head_of(lane) * problem_.levels + level);
  }

  __device__ __forceinline__ void copy_kept(int stage) {
    const int level = step_.level, count = span_keys >> level, inside = min(count, rows_left());
    float* to = memory_.kept(stage);
    for (int row = 0; row < rows_of_tile(); ++row) {
      const float* from = head_rows<const float>(problem_.coarse[level], step_.item.batch, head_of(row)) + first_row();
      for (int m = threadIdx.x % 32; m < inside; m += 32) cp_async_4(to + row * count + m, from + m);
    }
  }

  __device__ __forceinline__ void advance() {
    step_.first += step_.level == 0 ? keys : 2 * keys;
    if (!step_.kept && step_.first < span_keys >> step_.level && rows_left() > 0) return;
    step_.first = 0;
    step_.kept = false;
    if (--step_.level >= 0) return;
    step_.span += span_keys;
    const std::int64_t chunk_end = std::int64_t(step_.item.chunk + 1) * split_.chunk_keys;
    if (step_.span < min(step_.item.end, chunk_end))
      begin_span();
    else
      next_item();
  }
  __device__ void begin_span() {
    const int top = top_level(problem_, step_.item.end);
    step_.first = 0;
    step_.kept = top < problem_.levels - 1;
    step_.level = top + step_.kept;
  }
  __device__ void next_item() {
    step_.level = -1;
    if (!items_.find(next_index_, step_.item)) return;
    next_index_ += gridDim.x * (blockDim.x / 32);
    step_.span = step_.item.chunk * split_.chunk_keys;
    begin_span();
  }

  const AttentionExtend& problem_;
  const Split& split_;
  const WarpMemory<width>& memory_;
  Items items_;
  Step step_;
  std::int64_t next_index_;
};

}  // namespace hkt::kernels::cuda::decode
