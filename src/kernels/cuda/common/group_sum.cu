// SPDX-License-Identifier: Apache-2.0
// Gradients of keys and values that heads of queries share: the sums of what each head has, all levels in one kernel.
#include <algorithm>

#include "common/element.h"
#include "common/launch.h"
#include "common/problem.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 256;

// One array: `to` is the sum over groups of neighbouring heads of `from`. A thread sums `vector` neighbours of a row.
struct GroupSum {
  Array from, to;
  unsigned vectors = 0;         // of a row
  unsigned sequence_count = 0;  // vectors of a sequence
  unsigned blocks = 0;          // of a sequence
};
struct GroupSums {
  GroupSum arrays[max_levels + 1];
  int count = 0;
  unsigned sequences = 0, key_heads = 0, group = 0;
};

// Neighbours, as numbers to sum and as they lie in memory.
template <class T, int vector>
struct Packed {
  using Number = float;
  using Memory = T;
  static_assert(vector == 1);
  __device__ static void add(float (&sum)[1], Memory memory) { sum[0] += static_cast<float>(memory); }
  __device__ static Memory packed(const float (&sum)[1]) { return static_cast<T>(sum[0]); }
};
template <>
struct Packed<double, 1> {
  using Number = double;
  using Memory = double;
  __device__ static void add(double (&sum)[1], double memory) { sum[0] += memory; }
  __device__ static double packed(const double (&sum)[1]) { return sum[0]; }
};
template <class T>
struct Packed<T, 8> {
  using Number = float;
  using Memory = uint4;
  __device__ static void add(float (&sum)[8], const uint4& memory) {
    const std::uint32_t pairs[4] = {memory.x, memory.y, memory.z, memory.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack<T>(pairs[i]);
      sum[2 * i] += pair.x;
      sum[2 * i + 1] += pair.y;
    }
  }
  __device__ static uint4 packed(const float (&sum)[8]) {
    return {pack<T>(sum[0], sum[1]), pack<T>(sum[2], sum[3]), pack<T>(sum[4], sum[5]), pack<T>(sum[6], sum[7])};
  }
};

template <class T, int vector>
__global__ void __launch_bounds__(threads) group_sum_kernel(const __grid_constant__ GroupSums sums) {
  using P = Packed<T, vector>;
  using Memory = typename P::Memory;
  const GroupSum& array = sums.arrays[blockIdx.y];
  if (array.blocks == 0) return;
  const unsigned sequence = blockIdx.x / array.blocks;
  const unsigned place = blockIdx.x % array.blocks * threads + threadIdx.x;
  if (sequence >= sums.sequences || place >= array.sequence_count) return;
  const unsigned batch = sequence / sums.key_heads, head = sequence % sums.key_heads;
  const unsigned row = place / array.vectors, column = place % array.vectors * vector;
  const T* from = static_cast<const T*>(array.from.data) + batch * array.from.batch_stride +
                  std::int64_t(head) * sums.group * array.from.head_stride + row * array.from.row_stride + column;
  typename P::Number sum[vector] = {};
#pragma unroll 4
  for (unsigned i = 0; i < sums.group; ++i, from += array.from.head_stride)
    P::add(sum, *reinterpret_cast<const Memory*>(from));
  T* to = static_cast<T*>(array.to.data) + batch * array.to.batch_stride + head * array.to.head_stride +
          row * array.to.row_stride + column;
  *reinterpret_cast<Memory*>(to) = P::packed(sum);
}

template <class T, int vector>
void start_group_sums(GroupSums sums, const AttentionBackward& problem, const Device& device) {
  std::int64_t blocks = 0;
  for (int i = 0; i < sums.count; ++i) {
    const bool is_value = i == problem.levels;
    const std::int64_t rows = is_value ? problem.length : level_rows(problem.length, i);
    GroupSum& array = sums.arrays[i];
    array.vectors = static_cast<unsigned>((is_value ? problem.value_width : problem.width) / vector);
    array.sequence_count = static_cast<unsigned>(rows * array.vectors);
    array.blocks = static_cast<unsigned>(ceil_divide<std::int64_t>(array.sequence_count, threads));
    blocks = std::max(blocks, sums.sequences * static_cast<std::int64_t>(array.blocks));
  }
  launch(group_sum_kernel<T, vector>, grid_of(blocks, sums.count), threads, 0, device.stream, sums);
}

template <class T>
void start_16_bit(const GroupSums& sums, const AttentionBackward& problem, const Device& device) {
  constexpr int vector = 8;  // elements that are read and written at a time
  bool aligned = problem.width % vector == 0 && problem.value_width % vector == 0;
  for (int i = 0; i < sums.count; ++i)
    aligned = aligned && is_aligned(sums.arrays[i].from, vector) && is_aligned(sums.arrays[i].to, vector);
  aligned ? start_group_sums<T, vector>(sums, problem, device) : start_group_sums<T, 1>(sums, problem, device);
}

}  // namespace

void sum_over_groups(const AttentionBackward& problem, const Array (&grad_k)[max_levels], const Array& grad_v,
                     const Device& device) {
  constexpr std::int64_t most = UINT32_MAX;
  if (problem.batch * problem.key_heads > most || problem.length * std::max(problem.width, problem.value_width) > most)
    throw std::runtime_error("hkt: too many keys to sum their gradients over groups of heads; split the batch");
  GroupSums sums;
  sums.count = problem.levels + 1;
  sums.sequences = static_cast<unsigned>(problem.batch * problem.key_heads);
  sums.key_heads = static_cast<unsigned>(problem.key_heads);
  sums.group = static_cast<unsigned>(problem.heads / problem.key_heads);
  for (int level = 0; level < problem.levels; ++level)
    sums.arrays[level] = {.from = problem.grad_k[level], .to = grad_k[level]};
  sums.arrays[problem.levels] = {.from = problem.grad_v, .to = grad_v};
  switch (problem.element) {
    case Element::bfloat16:
      return start_16_bit<bfloat16>(sums, problem, device);
    case Element::float16:
      return start_16_bit<float16>(sums, problem, device);
    case Element::float32:
      return start_group_sums<float, 1>(sums, problem, device);
    case Element::float64:
      return start_group_sums<double, 1>(sums, problem, device);
  }
}

}  // namespace hkt::kernels::cuda
