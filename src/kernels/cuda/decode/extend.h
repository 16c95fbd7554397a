// SPDX-License-Identifier: Apache-2.0
// Attention over cached keys on tensor cores (mma.sync), made for decoding: bound by the reading of keys and values. A warp
// takes a chunk of keys of a key head and up to 16 rows, the queries of all heads of its group, so that the cache is read
// once. Coarse scores lie in shared memory as float rows, whether they were computed here or kept from an earlier token.
#pragma once

#include "common/mma.h"
#include "decode/loader.h"
#include "decode/merge.h"

namespace hkt::kernels::cuda::decode {

// A warp's chunk: queries of the current level, and the running softmax and output of its rows. A thread has rows
// lane / 4 and lane / 4 + 8 ("halves"). Rows beyond the tile's last one repeat that one and are not written.
template <class T, int width>
class Chunk {
 public:
  __device__ Chunk(const AttentionExtend& problem, const Split& split, const Partials<float>& partials,
                   const WarpMemory<width>& memory)
      : problem_(problem), split_(split), partials_(partials), memory_(memory) {}

  __device__ __forceinline__ void add(const Step& step, int stage) {
    rows_ = min(tile_rows, split_.rows - tile_rows * step.item.row_tile);
    if (step.kept) return take_kept(step, stage);
    if (step.first == 0) read_queries(stage);
    if (step.level > 0) return add_coarse(step, stage);
    const int key = step.span + step.first, chunk_begin = step.item.chunk * split_.chunk_keys;
    if (key == chunk_begin) begin(step);
    add_fine(step, stage);
    if (key + keys >= min(static_cast<int>(step.item.end), chunk_begin + split_.chunk_keys)) write(step);
  }

 private:
  static constexpr int keys = step_keys<width>;
  static constexpr int lane_columns = 2;

  static __device__ int row_of(int half) { return threadIdx.x % 32 / 4 + 8 * half; }
  static __device__ int column() { return lane_columns * (threadIdx.x % 4); }
  __device__ int readable_row(int row) const { return min(row, rows_ - 1); }

  __device__ __forceinline__ void read_queries(int stage) {
    const Lane<width> lane(memory_.queries(stage), readable_row(left_row()), left_vector());
#pragma unroll
    for (int k = 0; k < width / 16; ++k) ldmatrix_x4(q_[k], lane.at(0, 2 * k));
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor_[half] = memory_.factors(stage)[readable_row(row_of(half))] * static_cast<float>(problem_.scale);
  }

  __device__ __forceinline__ void take_kept(const Step& step, int stage) {
    const int count = span_keys >> step.level, pitch = score_pitch(step.level);
    const float* from = memory_.kept(stage);
    float* to = memory_.scores(step.level);
    for (int i = threadIdx.x % 32; i < rows_ * count; i += 32) to[i / count * pitch + i % count] = from[i];
  }

  // Two blocks of 8 rows of keys.
  __device__ __forceinline__ void products(float (&sums)[2][4], const Lane<width>& lane, int row) const {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) {
      std::uint32_t b[4];
      ldmatrix_x4(b, lane.at(row, 2 * k));
      mma<T>(sums[0], q_[k], b[0], b[1], k == 0);
      mma<T>(sums[1], q_[k], b[2], b[3], k == 0);
    }
  }
  __device__ __forceinline__ Lane<width> key_lane(int stage) const {
    return {memory_.rows(stage), 8 * right_block() + right_row(), right_vector()};
  }

  // R(l)[m] = weight_l · scale · ⟨q(l), k(l)[m]⟩ + R(l + 1)[m / 2], to shared memory and, if they are kept, to global memory.
  __device__ __forceinline__ void add_coarse(const Step& step, int stage) const {
    const int level = step.level, count = span_keys >> level;
    const Lane<width> lane = key_lane(stage);
#pragma unroll
    for (int row = 0; row < 2 * keys; row += 16) {
      if (step.first + row >= count) break;
      float sums[2][4];
      products(sums, lane, row);
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          write_coarse(step, row_of(half), step.first + row + 8 * block + column(),
                       sums[block][2 * half] * factor_[half], sums[block][2 * half + 1] * factor_[half]);
    }
  }
  __device__ __forceinline__ void write_coarse(const Step& step, int row, int m, float x, float y) const {
    const int level = step.level;
    if (row >= rows_ || m >= span_keys >> level) return;
    if (level + 1 < problem_.levels) {
      const float coarser = memory_.scores(level + 1)[row * score_pitch(level + 1) + m / 2];
      x += coarser, y += coarser;
    }
    float* to = memory_.scores(level) + row * score_pitch(level) + m;
    to[0] = x, to[1] = y;
    if (!keeps_scores(problem_)) return;
    const int global = (step.span >> level) + m, end = level_rows(static_cast<int>(step.item.end), level);
    const std::int64_t head = std::int64_t(step.item.key_head) * split_.group + tile_rows * step.item.row_tile + row;
    float* kept = head_rows<float>(problem_.coarse[level], step.item.batch, head) + global;
    if (global < end) kept[0] = x;
    if (global + 1 < end) kept[1] = y;
  }

  __device__ __forceinline__ void begin(const Step& step) {
    first_position_ = static_cast<int>(step.item.end) - static_cast<int>(problem_.queries);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      position_[half] = first_position_ + (tile_rows * step.item.row_tile + readable_row(row_of(half))) / split_.group;
      largest_[half] = -INFINITY, total_[half] = 0;
    }
#pragma unroll
    for (int block = 0; block < width / 8; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[block][i] = 0;
  }

  __device__ __forceinline__ void add_fine(const Step& step, int stage) {
    float scores[keys / 8][4];
    const Lane<width> lane = key_lane(stage);
#pragma unroll
    for (int row = 0; row < keys; row += 16) {
      float (&two)[2][4] = reinterpret_cast<float (&)[2][4]>(scores[row / 8]);
      products(two, lane, row);
    }
    const float* coarse[2] = {};
    if (problem_.levels > 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        coarse[half] = memory_.scores(1) + readable_row(row_of(half)) * odd_pitch + (step.first + column()) / 2;
    }
#pragma unroll
    for (int block = 0; block < keys / 8; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float coarser = problem_.levels > 1 ? coarse[half][4 * block] : 0.0f;
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) scores[block][i] = scores[block][i] * factor_[half] + coarser;
      }
    const int key = step.span + step.first;
    if (key + keys > first_position_ + 1) mask(scores, key);
    softmax(scores);
    add_values(scores, stage);
  }

  __device__ __forceinline__ void mask(float (&scores)[keys / 8][4], int key) const {
#pragma unroll
    for (int block = 0; block < keys / 8; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (key + 8 * block + column() + i % 2 > position_[i / 2]) scores[block][i] = -INFINITY;
  }

  // Scores become exponentials relative to the largest one so far, and what was summed up follows when that rises.
  __device__ __forceinline__ void softmax(float (&scores)[keys / 8][4]) {
    float largest[2] = {largest_[0], largest_[1]};
#pragma unroll
    for (int block = 0; block < keys / 8; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], scores[block][i]);
    if (__any_sync(~0u, largest[0] > largest_[0] || largest[1] > largest_[1])) rescale(largest);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float base = largest_[half] == -INFINITY ? 0.0f : largest_[half] * log2_e;
#pragma unroll
      for (int block = 0; block < keys / 8; ++block)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[block][i] = exp2_fast(scores[block][i] * log2_e - base);
          total_[half] += scores[block][i];
        }
    }
  }
  __device__ __forceinline__ void rescale(const float (&largest)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float rise = fmaxf(largest[half], __shfl_xor_sync(~0u, largest[half], 1));
      rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
      const float factor = rise > largest_[half] ? exp2_fast((largest_[half] - rise) * log2_e) : 1.0f;
      largest_[half] = rise;
      total_[half] *= factor;
#pragma unroll
      for (int block = 0; block < width / 8; ++block) {
        out_[block][2 * half] *= factor;
        out_[block][2 * half + 1] *= factor;
      }
    }
  }

  __device__ __forceinline__ void add_values(const float (&scores)[keys / 8][4], int stage) {
    const Lane<width> lane(memory_.rows(stage), keys + left_row(), left_vector());
#pragma unroll
    for (int row = 0; row < keys; row += 16) {
      const float (&x)[4] = scores[row / 8], (&y)[4] = scores[row / 8 + 1];
      const std::uint32_t a[4] = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(y[0], y[1]), pack<T>(y[2], y[3])};
#pragma unroll
      for (int block = 0; block < width / 8; block += 2) {
        std::uint32_t b[4];
        ldmatrix_x4_trans(b, lane.at(row, block));
        mma<T>(out_[block], a, b[0], b[1]);
        mma<T>(out_[block + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void write(const Step& step) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = total_[half];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if (row_of(half) >= rows_) continue;
      const int row = tile_rows * step.item.row_tile + row_of(half);
      const std::int64_t partial =
          first_partial(problem_, split_, step.item.batch, step.item.key_head, row) + step.item.chunk;
      if (column() == 0) *reinterpret_cast<float2*>(partials_.stats + 2 * partial) = {largest_[half], total};
      float* to = partials_.sums + partial * partials_.pitch + column();
#pragma unroll
      for (int block = 0; block < width / 8; ++block)
        if (8 * block < problem_.value_width)
          *reinterpret_cast<float2*>(to + 8 * block) = {out_[block][2 * half], out_[block][2 * half + 1]};
    }
  }

  const AttentionExtend& problem_;
  const Split& split_;
  const Partials<float>& partials_;
  const WarpMemory<width>& memory_;
  int rows_;  // of the tile
  int first_position_, position_[2];
  float factor_[2], largest_[2], total_[2];
  std::uint32_t q_[width / 16][4];
  float out_[width / 8][4];
};

template <class T, int width>
__global__ void __launch_bounds__(32 * max_warps, 1)
    extend_kernel(const __grid_constant__ AttentionExtend problem, const __grid_constant__ Split split,
                  const Partials<float> partials) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  launch_dependents();
  const WarpMemory<width> memory(bytes, min(tile_rows, split.rows));
  Loader<T, width> loader(problem, split, memory);
  Chunk<T, width> chunk(problem, split, partials, memory);
  for (int stage = 0; stage < stages - 1; ++stage) loader.load(stage);
  for (int stage = 0;; stage = stage + 1 < stages ? stage + 1 : 0) {
    cp_async_wait<stages - 2>();
    __syncwarp();
    const Step step = memory.step(stage);
    if (step.level < 0) break;
    loader.load(stage > 0 ? stage - 1 : stages - 1);
    chunk.add(step, stage);
  }
}

template <class T, int width>
void start_extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  const Split split = split_of(problem, tile_rows);
  const auto partials = Partials<float>::in(workspace, problem, split);
  const int warp_bytes = layout_of<width>(std::min(tile_rows, split.rows)).end;
  const int warps = std::min(max_warps, device.shared_bytes / warp_bytes);
  const std::int64_t items = problem.batch * problem.key_heads * split.row_tiles * split.chunks;
  if (items > 0)
    launch(extend_kernel<T, width>, grid_of(std::min<std::int64_t>(items, device.sm_count)), 32 * warps,
           warps * warp_bytes, device.stream, problem, split, partials);
  start_merge<T, float>(problem, device, split, partials);
}

}  // namespace hkt::kernels::cuda::decode
