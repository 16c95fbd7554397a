// SPDX-License-Identifier: Apache-2.0
// The partial results of all chunks become the output, always in the same order.
#pragma once

#include "common/problem.h"
#include "decode/split.h"

namespace hkt::kernels::cuda::decode {

// Programmatic dependent launch, from Hopper on: the next kernel may start, though it waits for the end of this one,
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// and the end of the kernel before this one.
__device__ __forceinline__ void wait_for_primary() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

namespace merge_tile {
inline constexpr int columns = 32, slices = 32, lanes = columns / 4, threads = lanes * slices;
}

// Neighbouring columns, which a thread reads at once.
template <class T>
struct alignas(16) FourColumns {
  T x[4];
};

// A CTA for each row and 32 columns of the output. Slice s adds up the chunks s, s + 32, …; then the slices are added in order.
template <class S, class T>
__global__ void __launch_bounds__(merge_tile::threads)
    merge_kernel(const __grid_constant__ AttentionExtend problem, const __grid_constant__ Split split,
                 const Partials<T> partials) {
  using namespace merge_tile;
  __shared__ T warp_largest[threads / 32];
  __shared__ T totals[slices];
  __shared__ FourColumns<T> sums[slices][lanes];
  const int query = static_cast<int>(blockIdx.x % problem.queries);
  const std::int64_t sequence = blockIdx.x / problem.queries, head = sequence % problem.heads;
  const std::int64_t batch = sequence / problem.heads, key_head = head / split.group;
  const int row = query * split.group + static_cast<int>(head % split.group);
  const int chunks = chunks_of(split, end_of(problem, batch));
  const std::int64_t first = first_partial(problem, split, batch, key_head, row);
  const T* stats = partials.stats + 2 * first;

  wait_for_primary();
  T largest = -T(INFINITY);
#pragma unroll 4
  for (int chunk = threadIdx.x; chunk < chunks; chunk += threads) largest = max(largest, stats[2 * chunk]);
  for (int distance = 16; distance > 0; distance /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < threads / 32; ++warp) largest = max(largest, warp_largest[warp]);

  const int lane = threadIdx.x % lanes, slice = threadIdx.x / lanes, column = blockIdx.y * columns + 4 * lane;
  T total = 0;
  FourColumns<T> sum{};
  if (largest > -T(INFINITY) && column < partials.pitch) {
    const T* values = partials.sums + first * partials.pitch + column;
#pragma unroll 8
    for (int chunk = slice; chunk < chunks; chunk += slices) {
      const T factor = exp(stats[2 * chunk] - largest);
      const FourColumns<T> four =
          *reinterpret_cast<const FourColumns<T>*>(values + std::int64_t(chunk) * partials.pitch);
      total += factor * stats[2 * chunk + 1];
      for (int i = 0; i < 4; ++i) sum.x[i] += factor * four.x[i];
    }
  }
  sums[slice][lane] = sum;
  if (lane == 0) totals[slice] = total;
  __syncthreads();

  if (threadIdx.x >= columns) return;
  const int own = blockIdx.y * columns + threadIdx.x;
  T value = 0;
  total = 0;
  for (int s = 0; s < slices; ++s) total += totals[s], value += sums[s][threadIdx.x / 4].x[threadIdx.x % 4];
  const bool valid = largest > -T(INFINITY);
  if (own < problem.value_width)
    head_rows<S>(problem.out, batch, head)[query * problem.out.row_stride + own] =
        static_cast<S>(valid ? value / total : T(0));
  if (own == 0) static_cast<T*>(problem.lse)[blockIdx.x] = valid ? largest + log(total) : -T(INFINITY);
}

// After the kernel that leaves the partial results.
template <class S, class T>
void start_merge(const AttentionExtend& problem, const Device& device, const Split& split,
                 const Partials<T>& partials) {
  cudaLaunchConfig_t config{};
  config.gridDim =
      grid_of(problem.batch * problem.heads * problem.queries, ceil_divide(problem.value_width, merge_tile::columns));
  config.blockDim = dim3(merge_tile::threads);
  config.stream = static_cast<cudaStream_t>(device.stream);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = device.capability >= 90 ? 1 : 0;
  // The division of L1 that the kernel before it has: an SM must be idle to change it.
  check(cudaFuncSetAttribute(merge_kernel<S, T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "shared memory");
  check(cudaLaunchKernelEx(&config, merge_kernel<S, T>, problem, split, partials), "starting a kernel");
}

}  // namespace hkt::kernels::cuda::decode
