// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions at the speed of memory. A thread has a packet of channels; in the passes to y and to the gradient of x it
// has some neighbouring rows of them, whose inputs overlap. The gradient of the weights is summed by CTAs over their rows, then by a
// second kernel over the CTAs, always in the same order.
#include <algorithm>

#include "common/column_sums.h"
#include "common/launch.h"
#include "common/packet.h"
#include "kernels/depthwise.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int rows_per_thread = 4;
constexpr int most_batches = 65535;  // of a grid's second dimension

__host__ __device__ std::int64_t output_rows(const Depthwise& p) { return (p.length + p.step - 1) / p.step; }

// The thread's channels and first row, in the order channels, rows.
template <int count>
struct Place {
  int column;
  std::int64_t row;

  explicit __device__ Place(int width) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    const int packets = width / count;
    column = static_cast<int>(index % packets) * count;
    row = index / packets * rows_per_thread;
  }
};

template <int count>
dim3 grid_for(const Depthwise& p, std::int64_t rows) {
  const std::int64_t threads_needed = ceil_divide<std::int64_t>(rows, rows_per_thread) * (p.width / count);
  return grid_of(ceil_divide<std::int64_t>(threads_needed, threads),
                 static_cast<unsigned>(std::min<std::int64_t>(p.batch, most_batches)));
}

template <class Factors, class T, int count>
__device__ __forceinline__ void add_product(float (&sums)[count], const Factors& factors, const Packet<T, count>& x) {
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] = fmaf(factors[i], x[i], sums[i]);
}

// For each of the thread's rows the sum over taps of weight · input(row, tap), where `has` says that there is such an input.
template <class T, int count, class Has, class Input>
__device__ __forceinline__ void convolve(const Depthwise& p, int column, T* to, std::int64_t first, std::int64_t rows,
                                         const Has& has, const Input& input) {
  float sums[rows_per_thread][count] = {};
  for (int tap = 0; tap < p.taps; ++tap) {
    const auto stored =
        load_packet<count>(static_cast<const T*>(p.weight) + static_cast<std::int64_t>(tap) * p.width + column);
    float weight[count];
#pragma unroll
    for (int c = 0; c < count; ++c) weight[c] = stored[c] + (p.residual && tap == 0 ? 1 : 0);
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i)
      if (first + i < rows && has(first + i, tap))
        add_product(sums[i], weight, load_packet<count>(input(first + i, tap)));
  }
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i)
    if (first + i < rows) store_packet(to + (first + i) * p.width, sums[i]);
}

template <class T, int count>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ Depthwise p) {
  const Place<count> place(p.width);
  const std::int64_t rows = output_rows(p);
  if (place.row >= rows) return;
  for (std::int64_t b = blockIdx.y; b < p.batch; b += gridDim.y) {
    const T* x = static_cast<const T*>(p.x) + b * p.x_batch_stride + place.column;
    convolve<T, count>(
        p, place.column, static_cast<T*>(p.y) + b * rows * p.width + place.column, place.row, rows,
        [&](std::int64_t row, int tap) { return p.step * row >= tap; },
        [&](std::int64_t row, int tap) { return x + (p.step * row - tap) * p.x_row_stride; });
  }
}

template <class T, int count>
__global__ void __launch_bounds__(threads) backward_x_kernel(const __grid_constant__ DepthwiseBackward p) {
  const Place<count> place(p.width);
  const std::int64_t rows = output_rows(p);
  if (place.row >= p.length) return;
  const int shift = p.step - 1;
  for (std::int64_t b = blockIdx.y; b < p.batch; b += gridDim.y) {
    const T* grad_y = static_cast<const T*>(p.grad_y) + b * rows * p.width + place.column;
    convolve<T, count>(
        p, place.column, static_cast<T*>(p.grad_x) + b * p.length * p.width + place.column, place.row, p.length,
        [&](std::int64_t row, int tap) { return ((row + tap) & shift) == 0 && (row + tap) >> shift < rows; },
        [&](std::int64_t row, int tap) { return grad_y + ((row + tap) >> shift) * p.width; });
  }
}

// ---- the gradient of the weights ----

constexpr int taps_at_once = 4;
constexpr int ctas_per_sm = 2;

// Lanes of a CTA that share rows: as many as there are packets, up to a warp, rounded up to a power of two.
int lanes_for(int packets) {
  int lanes = 1;
  while (lanes < packets && lanes < 32) lanes *= 2;
  return lanes;
}

// partials: [gridDim.x, taps, width]. The CTA has channels from blockIdx.y on and taps from blockIdx.z on.
template <class T, int count>
__global__ void __launch_bounds__(threads)
    backward_weight_kernel(const __grid_constant__ DepthwiseBackward p, float* partials, int lanes) {
  __shared__ float shared[threads][taps_at_once * count + 1];
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = threads / lanes;
  const int column = (blockIdx.y * lanes + lane) * count;
  const int first_tap = blockIdx.z * taps_at_once;
  const std::int64_t rows = output_rows(p), all = p.batch * rows;
  float sums[taps_at_once][count] = {};
  if (column < p.width) {
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * groups + group; i < all;
         i += static_cast<std::int64_t>(gridDim.x) * groups) {
      const std::int64_t b = i / rows, row = i - b * rows;
      const auto grad = load_packet<count>(static_cast<const T*>(p.grad_y) + i * p.width + column);
      const T* x = static_cast<const T*>(p.x) + b * p.x_batch_stride + column;
#pragma unroll
      for (int r = 0; r < taps_at_once; ++r) {
        const std::int64_t from = p.step * row - (first_tap + r);
        if (from >= 0 && first_tap + r < p.taps)
          add_product(sums[r], grad, load_packet<count>(x + from * p.x_row_stride));
      }
    }
  }
#pragma unroll
  for (int r = 0; r < taps_at_once; ++r)
#pragma unroll
    for (int c = 0; c < count; ++c) shared[threadIdx.x][r * count + c] = sums[r][c];
  __syncthreads();
  for (int i = threadIdx.x; i < lanes * taps_at_once * count; i += threads) {
    const int c = i % count, l = i / count % lanes, r = i / (count * lanes);
    const int to_column = (blockIdx.y * lanes + l) * count + c;
    if (to_column >= p.width || first_tap + r >= p.taps) continue;
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += shared[g * lanes + l][r * count + c];
    partials[(static_cast<std::int64_t>(blockIdx.x) * p.taps + first_tap + r) * p.width + to_column] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(column_sum_threads) sum_kernel(const float* partials, int parts, int columns, T* to) {
  const auto [column, is_mine, sum] = column_sum(partials, parts, columns);
  if (is_mine) to[column] = static_cast<T>(sum);
}

int part_count(const Device& device) { return device.sm_count * ctas_per_sm; }

bool has_whole_packets(const Depthwise& p) {
  const int count = packet_elements(p.element);
  return p.width % count == 0 && p.x_batch_stride % count == 0 && p.x_row_stride % count == 0 &&
         is_packet_aligned(p.x) && is_packet_aligned(p.weight);
}

}  // namespace

std::int64_t workspace_bytes(const DepthwiseBackward& problem, const Device& device) {
  return std::int64_t{part_count(device)} * problem.taps * problem.width * static_cast<std::int64_t>(sizeof(float));
}

void depthwise_forward(const Depthwise& p, const Device& device) {
  if (p.batch == 0 || p.length == 0 || p.width == 0) return;
  with_packets(p.element, has_whole_packets(p) && is_packet_aligned(p.y), [&]<class T, int count>() {
    launch(forward_kernel<T, count>, grid_for<count>(p, output_rows(p)), threads, 0, device.stream, p);
  });
}

void depthwise_backward(const DepthwiseBackward& p, const Device& device, void* workspace) {
  if (p.taps == 0 || p.width == 0) return;
  const bool whole = has_whole_packets(p) && is_packet_aligned(p.grad_y) && is_packet_aligned(p.grad_x);
  with_packets(p.element, whole, [&]<class T, int count>() {
    if (p.batch > 0 && p.length > 0)
      launch(backward_x_kernel<T, count>, grid_for<count>(p, p.length), threads, 0, device.stream, p);
    const int packets = p.width / count, lanes = lanes_for(packets), parts = part_count(device);
    auto* partials = static_cast<float*>(workspace);
    const dim3 grid(parts, ceil_divide(packets, lanes), ceil_divide(p.taps, taps_at_once));
    launch(backward_weight_kernel<T, count>, grid, threads, 0, device.stream, p, partials, lanes);
    const int columns = p.taps * p.width;
    launch(sum_kernel<T>, ceil_divide(columns, column_sum_columns), column_sum_threads, 0, device.stream, partials,
           parts, columns, static_cast<T*>(p.grad_weight));
  });
}

}  // namespace hkt::kernels::cuda
