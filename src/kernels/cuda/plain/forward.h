// The forward pass for any element type and shape, in float64 or float32.
#pragma once

#include "../families.h"
#include "tile.h"

namespace hkt::kernels::cuda::plain {

// chunks: columns of the output in units of 64.
template <class S, int chunks>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ AttentionForward problem) {
  using T = Arithmetic<S>;
  auto& [shared, probabilities] = shared_memory<T>();
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const auto [first, head, batch] = place_of_block(problem);
  const std::int64_t length = valid_length(problem, batch);
  const Rows<S> v = rows_of<S>(problem.v, batch, head, problem.length);
  const T infinity = T(INFINITY);
  T out[chunks][4][4] = {}, largest[4], total[4] = {};
  for (T& value : largest) value = -infinity;

  const std::int64_t end = problem.causal ? min(length, first + tile) : length;
  for (std::int64_t key = 0; key < end && first < length; key += tile) {
    T scores[4][4] = {};
    add_scores<S>(scores, shared, problem, problem.q, first, problem.k, key, batch, head);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = first + 4 * y + i;
      T row_largest = -infinity;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t column = key + 4 * x + j;
        if (column >= length || (problem.causal && column > row)) scores[i][j] = -infinity;
        row_largest = max(row_largest, scores[i][j]);
      }
      row_largest = max(largest[i], max_of_row(row_largest));
      const T base = row_largest == -infinity ? T(0) : row_largest;
      const T shrink = natural_exp(largest[i] - base);
      T row_total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const T p = natural_exp(scores[i][j] - base);
        probabilities[4 * x + j][4 * y + i] = p;
        row_total += p;
      }
      total[i] = total[i] * shrink + sum_of_row(row_total);
      largest[i] = row_largest;
#pragma unroll
      for (int c = 0; c < chunks; ++c)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[c][i][j] *= shrink;
    }
#pragma unroll
    for (int c = 0; c < chunks; ++c)
      for (int k = 0; k < tile && tile * c < problem.value_width; k += depth) {
        __syncthreads();
        load_straight(shared.b, v, key, 0, k, tile * c, problem.value_width);
        __syncthreads();
        add_product(out[c], probabilities + k, shared.b, depth);
      }
    __syncthreads();
  }

  S* result = static_cast<S*>(problem.out.data) + batch * problem.out.batch_stride + head * problem.out.head_stride;
  T* lse = static_cast<T*>(problem.lse) + (batch * problem.heads + head) * problem.length;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = first + 4 * y + i;
    if (row >= problem.length) continue;
    const bool valid = row < length;
    if (x == 0) lse[row] = valid ? largest[i] + log(total[i]) : -infinity;
#pragma unroll
    for (int c = 0; c < chunks; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = tile * c + 4 * x + j;
        if (column < problem.value_width)
          result[row * problem.out.row_stride + column] = static_cast<S>(valid ? out[c][i][j] / total[i] : T(0));
      }
  }
}

template <class S>
void start_forward(const AttentionForward& problem, const Device& device) {
  for_chunks(problem.value_width, [&](auto chunks) {
    launch(forward_kernel<S, chunks>, blocks_for(problem), threads, sizeof(Shared<Arithmetic<S>>), device.stream, problem);
  });
}

}  // namespace hkt::kernels::cuda::plain
