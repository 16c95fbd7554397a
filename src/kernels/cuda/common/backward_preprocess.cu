// SPDX-License-Identifier: Apache-2.0
// Before and after the backward kernels of the tensor-core families: lse and delta of each row, the weights' gradient.
#include "common/backward_preprocess.h"
#include "common/element.h"
#include "common/problem.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int row_lanes = 8;  // for one row
constexpr int vector = 8;     // elements that a lane reads at once, 16 bytes

// Σ left · right over a vector.
template <class T>
__device__ __forceinline__ void add_dot(float& sum, const T* left, const T* right) {
  const uint4 a = *reinterpret_cast<const uint4*>(left), b = *reinterpret_cast<const uint4*>(right);
  const std::uint32_t left_pairs[4] = {a.x, a.y, a.z, a.w}, right_pairs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<T>(left_pairs[i]), y = unpack<T>(right_pairs[i]);
    sum += x.x * y.x + x.y * y.y;
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    preprocess_kernel(const __grid_constant__ AttentionBackward problem, std::int64_t first, std::int64_t padded,
                      float* lse, float* delta) {
  const std::int64_t cta = gridDim.x - 1 - blockIdx.x;
  const std::int64_t index = (cta * threads + threadIdx.x) / row_lanes;  // of the row among all
  const std::int64_t position = first + index % padded, sequence = index / padded;
  if (sequence >= problem.batch * problem.heads) return;
  const std::int64_t head = sequence % problem.heads, batch = sequence / problem.heads;
  std::int64_t end = problem.start + problem.queries;
  if (problem.lengths) end = min(end, problem.lengths[batch]);
  const bool is_query = position >= problem.start && position < end;
  const std::int64_t row = position - problem.start;
  float sum = 0;
  if (is_query) {
    const T* out = head_rows<const T>(problem.out, batch, head) + row * problem.out.row_stride;
    const T* grad_out = head_rows<const T>(problem.grad_out, batch, head) + row * problem.grad_out.row_stride;
    for (int column = vector * (threadIdx.x % row_lanes); column < problem.value_width; column += vector * row_lanes)
      add_dot(sum, out + column, grad_out + column);
  }
#pragma unroll
  for (int offset = row_lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % row_lanes != 0) return;
  const std::int64_t at = sequence * problem.queries + row;
  if (is_query && problem.grad_lse) sum -= static_cast<const float*>(problem.grad_lse)[at];
  delta[index] = sum;
  lse[index] = is_query ? static_cast<const float*>(problem.lse)[at] * log2_e : INFINITY;
}

// A CTA for each head and level.
__global__ void __launch_bounds__(threads) weight_gradient_kernel(const __grid_constant__ AttentionBackward problem,
                                                                  const float* partials, std::int64_t parts) {
  __shared__ float sums[threads];
  const std::int64_t head = blockIdx.x;
  const int level = blockIdx.y;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < problem.batch * parts; i += threads)
    sum += partials[((i / parts * problem.heads + head) * parts + i % parts) * problem.levels + level];
  sums[threadIdx.x] = sum;
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) static_cast<float*>(problem.grad_weights)[head * problem.levels + level] = sums[0];
}

}  // namespace

void backward_preprocess(const AttentionBackward& problem, const Device& device, float* lse, float* delta) {
  const std::int64_t padded = padded_queries(problem);
  const std::int64_t rows = problem.batch * problem.heads * padded;
  launch(problem.element == Element::bfloat16 ? preprocess_kernel<bfloat16> : preprocess_kernel<float16>,
         grid_of(ceil_divide<std::int64_t>(rows * row_lanes, threads)), threads, 0, device.stream, problem,
         first_tile_row(problem), padded, lse, delta);
}

void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts) {
  launch(weight_gradient_kernel, grid_of(problem.heads, problem.levels), threads, 0, device.stream, problem, partials,
         static_cast<std::int64_t>(parts));
}

}  // namespace hkt::kernels::cuda
