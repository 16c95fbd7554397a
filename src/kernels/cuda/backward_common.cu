// SPDX-License-Identifier: Apache-2.0
#include "backward_common.h"
#include "element.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int lanes = 8;  // for one row, each reading 16 bytes at a time

template <class T>
__global__ void __launch_bounds__(threads)
    row_kernel(const __grid_constant__ AttentionBackward problem, std::int64_t padded, float* lse, float* delta) {
  const std::int64_t block = gridDim.x - 1 - blockIdx.x;
  const std::int64_t all = (block * threads + threadIdx.x) / lanes;
  const std::int64_t row = all % padded, sequence = all / padded;
  if (sequence >= problem.batch * problem.heads) return;
  const std::int64_t head = sequence % problem.heads, batch = sequence / problem.heads;
  std::int64_t length = problem.length;
  if (problem.lengths) length = min(length, problem.lengths[batch]);
  float sum = 0;
  if (row < length) {
    const auto row_of = [&](const Array& array) {
      return static_cast<const T*>(array.data) + batch * array.batch_stride + head * array.head_stride +
             row * array.row_stride;
    };
    const T* out = row_of(problem.out);
    const T* grad = row_of(problem.grad_out);
    for (int column = 8 * (threadIdx.x % lanes); column < problem.value_width; column += 8 * lanes) {
      const uint4 a = *reinterpret_cast<const uint4*>(out + column), b = *reinterpret_cast<const uint4*>(grad + column);
      const std::uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = unpack<T>(left[i]), y = unpack<T>(right[i]);
        sum += x.x * y.x + x.y * y.y;
      }
    }
  }
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % lanes != 0) return;
  delta[all] = sum;
  lse[all] = row < length ? static_cast<const float*>(problem.lse)[sequence * problem.length + row] * log2_e : INFINITY;
}

__global__ void __launch_bounds__(threads)
    weight_kernel(const __grid_constant__ AttentionBackward problem, const float* partials, std::int64_t parts) {
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

void row_data(const AttentionBackward& problem, const Device& device, float* lse, float* delta) {
  const std::int64_t padded = padded_length(problem.length);
  const std::int64_t rows = problem.batch * problem.heads * padded;
  const dim3 blocks = grid_of(ceil_divide<std::int64_t>(rows * lanes, threads));
  launch(problem.element == Element::bfloat16 ? row_kernel<bfloat16> : row_kernel<float16>, blocks, threads, 0,
         device.stream, problem, padded, lse, delta);
}

void sum_weight_gradient(const AttentionBackward& problem, const Device& device, const float* partials, int parts) {
  launch(weight_kernel, grid_of(problem.heads, problem.levels), threads, 0, device.stream, problem, partials,
         static_cast<std::int64_t>(parts));
}

}  // namespace hkt::kernels::cuda
