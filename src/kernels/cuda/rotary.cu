// SPDX-License-Identifier: Apache-2.0
// Rotary positions at the speed of memory. A thread has a packet of channels of one row, in some heads that share their factors.
#include <algorithm>

#include "common/launch.h"
#include "common/packet.h"
#include "kernels/rotary.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int heads_per_thread = 4;
constexpr int most_batches = 65535;  // of a grid's second dimension

template <class T, int count>
__global__ void __launch_bounds__(threads) rotary_kernel(const __grid_constant__ Rotary p) {
  const int packets = p.width / count, head_groups = (p.heads + heads_per_thread - 1) / heads_per_thread;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int column = static_cast<int>(index % packets) * count;
  const std::int64_t rest = index / packets;
  const int first_head = static_cast<int>(rest % head_groups) * heads_per_thread;
  const std::int64_t row = rest / head_groups;
  if (row >= p.length) return;
  float factors[count];
#pragma unroll
  for (int i = 0; i < count; ++i) factors[i] = p.factors[row * p.factor_row_stride + column + i];
  for (std::int64_t b = blockIdx.y; b < p.batch; b += gridDim.y) {
    const T* x = static_cast<const T*>(p.x.data) + b * p.x.batch_stride + row * p.x.row_stride + column;
    T* y = static_cast<T*>(p.y.data) + b * p.y.batch_stride + row * p.y.row_stride + column;
#pragma unroll
    for (int i = 0; i < heads_per_thread; ++i) {
      const int head = first_head + i;
      if (head >= p.heads) break;
      const auto from = load_packet<count>(x + head * p.x.head_stride);
      float to[count];
#pragma unroll
      for (int c = 0; c < count; c += 2) {
        const float real = factors[c], imaginary = p.conjugate ? -factors[c + 1] : factors[c + 1];
        to[c] = from[c] * real - from[c + 1] * imaginary;
        to[c + 1] = from[c] * imaginary + from[c + 1] * real;
      }
      store_packet(y + head * p.y.head_stride, to);
    }
  }
}

bool allows(const Array& array, int count, std::uintptr_t bytes) {
  return array.batch_stride % count == 0 && array.head_stride % count == 0 && array.row_stride % count == 0 &&
         reinterpret_cast<std::uintptr_t>(array.data) % bytes == 0;
}

template <class T, int count>
void launch_rotary(const Rotary& p, const Device& device) {
  const std::int64_t threads_needed =
      p.length * ceil_divide(p.heads, heads_per_thread) * static_cast<std::int64_t>(p.width / count);
  const auto batches = static_cast<unsigned>(std::min<std::int64_t>(p.batch, most_batches));
  launch(rotary_kernel<T, count>, grid_of(ceil_divide<std::int64_t>(threads_needed, threads), batches), threads, 0,
         device.stream, p);
}

}  // namespace

void rotary(const Rotary& p, const Device& device) {
  if (p.batch == 0 || p.length == 0 || p.heads == 0 || p.width == 0) return;
  with_packets(p.element, true, [&]<class T, int count>() {
    const auto fits = [&](int elements) {
      return p.width % elements == 0 && allows(p.x, elements, elements * sizeof(T)) &&
             allows(p.y, elements, elements * sizeof(T));
    };
    if (fits(count)) return launch_rotary<T, count>(p, device);
    if (fits(2)) return launch_rotary<T, 2>(p, device);
    throw std::runtime_error("hkt: rotary positions of arrays that do not begin at pairs of channels");
  });
}

}  // namespace hkt::kernels::cuda
