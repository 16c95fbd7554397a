// SPDX-License-Identifier: Apache-2.0
// The forward pass for any element type and shape, in float64 or float32.
#pragma once

#include "families.h"
#include "plain/tile.h"

namespace hkt::kernels::cuda::plain {

// Wide values and float64 leave registers for smaller tiles.
template <class S, int padded>
using ForwardShape = std::conditional_t<std::is_same_v<S, double>, Shape<double, 4, 4>,
                                        std::conditional_t<(padded > 128), Shape<float, 4, 8>, Shape<float, 8, 8>>>;

// Resident CTAs on an SM: as many as registers suffice for.
template <class S, int padded>
inline constexpr int forward_blocks = std::is_same_v<S, double> || padded > 128 ? 1
                                      : padded > 64                             ? 2
                                                                                : 3;

// The running softmax of a thread's rows; `total` only over its own columns.
template <class Shape>
struct Softmax {
  using T = typename Shape::T;
  T largest[Shape::rows], total[Shape::rows];

  // Turns scores to probabilities, and brings `out` to the new base.
  template <int columns>
  __device__ __forceinline__ void add(T (&scores)[Shape::rows][Shape::columns], T (&out)[Shape::rows][columns]) {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      T row_largest = scores[i][0];
#pragma unroll
      for (int j = 1; j < Shape::columns; ++j) row_largest = max(row_largest, scores[i][j]);
      row_largest = max(largest[i], max_of_row(row_largest));
      const T base = row_largest == -T(INFINITY) ? T(0) : row_largest;
      const T shrink = natural_exp(largest[i] - base);
      largest[i] = row_largest;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < Shape::columns; ++j) {
        scores[i][j] = natural_exp(scores[i][j] - base);
        total[i] += scores[i][j];
      }
#pragma unroll
      for (int j = 0; j < columns; ++j) out[i][j] *= shrink;
    }
  }
};

// padded: the width of the values, rounded up.
template <class S, int padded>
__global__ void __launch_bounds__(ForwardShape<S, padded>::threads, forward_blocks<S, padded>)
    forward_kernel(const __grid_constant__ AttentionForward problem, bool aligned) {
  using Shape = ForwardShape<S, padded>;
  using T = typename Shape::T;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Sources<S> sources;
  const int levels = problem.levels, width = problem.width;
  const int stage_size = stage_bytes<Shape>(levels);
  const Tile<Shape> probabilities{memory + 2 * stage_size};
  const auto [first, head, batch] = place_of_block(problem, query_tiles(problem), problem.causal);
  const Window window = window_of(problem, batch);
  const std::int64_t length = window.keys;
  const T* weights = static_cast<const T*>(problem.weights) + head * levels;
  const T scale = T(problem.scale);
  find_sources<true>(sources, problem, problem.out, batch, head, window);

  // A step over 16 · columns keys is a number of jobs: products of some columns of q and k, then of some rows of v.
  constexpr int panel_rows = panel_rows_of<Shape, padded>;
  const int score_jobs = (width + depth<T> - 1) / depth<T>;
  const int jobs = score_jobs + Shape::other_tokens / panel_rows;
  const auto start = [&](int job, std::int64_t key, unsigned char* stage) {
    if (job < score_jobs)
      copy_levels<Shape>(stage, sources, levels, first, key, job * depth<T>, width, aligned);
    else
      copy_panel<Shape, padded>(stage, sources.other_value, key + (job - score_jobs) * panel_rows, panel_rows,
                                problem.value_width, aligned);
  };

  T out[Shape::rows][padded / 16] = {};
  Softmax<Shape> softmax;
#pragma unroll
  for (int i = 0; i < Shape::rows; ++i) softmax.largest[i] = -T(INFINITY), softmax.total[i] = 0;
  LevelScores<Shape> scores;

  const std::int64_t end = first >= window.end ? 0 : problem.causal ? min(length, first + own_tokens) : length;
  int job = 0, stage_number = 0;
  std::int64_t key = 0;
  if (end > 0) start(0, 0, memory);
  while (key < end) {
    const bool is_last = job + 1 == jobs;
    const std::int64_t next_key = is_last ? key + Shape::other_tokens : key;
    unsigned char* stage = memory + stage_number * stage_size;
    stage_number ^= 1;
    cp_async_wait_all();
    __syncthreads();
    if (next_key < end) start(is_last ? 0 : job + 1, next_key, memory + stage_number * stage_size);

    if (job < score_jobs) {
      scores.add(stage, levels, weights, scale);
    } else {
      const int panel = job - score_jobs;
      add_outer<Shape, padded>(out, probabilities, panel * panel_rows, stage, panel_rows);
    }
    if (job + 1 == score_jobs) {
      scores.combine(levels, weights, scale);
      if (key + Shape::other_tokens > length || (problem.causal && key + Shape::other_tokens > first)) {
#pragma unroll
        for (int i = 0; i < Shape::rows; ++i)
#pragma unroll
          for (int j = 0; j < Shape::columns; ++j) {
            const std::int64_t row = first + Shape::rows * thread_y() + i;
            const std::int64_t column = key + Shape::columns * thread_x() + j;
            if (column >= length || (problem.causal && column > row)) scores.fine[i][j] = -T(INFINITY);
          }
      }
      softmax.add(scores.fine, out);
      probabilities.write(scores.fine);
      scores = {};
    }
    job = is_last ? 0 : job + 1;
    key = next_key;
  }

  S* result = head_rows<S>(problem.out, batch, head) - problem.start * problem.out.row_stride;
  T* lse = static_cast<T*>(problem.lse) + (batch * problem.heads + head) * problem.queries - problem.start;
#pragma unroll
  for (int i = 0; i < Shape::rows; ++i) {
    const T total = sum_of_row(softmax.total[i]);
    const std::int64_t row = first + Shape::rows * thread_y() + i;
    if (row < problem.start || row >= problem.start + problem.queries) continue;
    const bool valid = row < length;
    if (thread_x() == 0) lse[row] = valid ? softmax.largest[i] + log(total) : -T(INFINITY);
#pragma unroll
    for (int j = 0; j < padded / 16; ++j) {
      const int column = column_of<T, padded>(j);
      if (column < problem.value_width)
        result[row * problem.out.row_stride + column] = static_cast<S>(valid ? out[i][j] / total : T(0));
    }
  }
}

template <class S>
void start_forward(const AttentionForward& problem, const Device& device) {
  for_width(problem.value_width, [&](auto padded) {
    using Shape = ForwardShape<S, padded>;
    launch(forward_kernel<S, padded>, blocks_for(problem, query_tiles(problem)), Shape::threads,
           shared_bytes<Shape>(problem.levels), device.stream, problem, inputs_are_aligned(problem, lanes<S>));
  });
}

}  // namespace hkt::kernels::cuda::plain
