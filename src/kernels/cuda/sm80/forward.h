// The forward pass on Ampere's tensor cores: 128 queries a block, four warps, steps of 64 keys.
#pragma once

#include "plan.h"
#include "tile.h"

namespace hkt::kernels::cuda::sm80 {

// Running softmax of one row: largest score (base 2) and total.
struct Softmax {
  float largest, total;
};

template <class T, int width>
__global__ void __launch_bounds__(forward_tile::threads)
    forward_kernel(const __grid_constant__ AttentionForward problem) {
  using namespace forward_tile;
  constexpr int blocks = keys / 8;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Swizzled<width> q{static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))};
  const Swizzled<width> k = q.from_row(level_base(queries, problem.levels));
  const Swizzled<width> v = k.from_row(level_base(keys, problem.levels));

  const std::int64_t tiles = (problem.length + queries - 1) / queries;
  const std::int64_t head = blockIdx.x / tiles % problem.heads, batch = blockIdx.x / tiles / problem.heads;
  std::int64_t index = blockIdx.x % tiles;
  if (problem.causal) index = tiles - 1 - index;  // long rows first
  std::int64_t length = problem.length;
  if (problem.lengths) length = max(std::int64_t(0), min(length, problem.lengths[batch]));
  const Place place{index * queries, head, batch, length};
  const float* weights = static_cast<const float*>(problem.weights) + head * problem.levels;
  const float unit = static_cast<float>(problem.scale) * log2_e;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = 32 * warp + 2 * (lane / 4);  // of the tile; + parity, + 16 for the fragment's second half
  float out[2][width / 8][4] = {};
  Softmax rows[2][2];  // by parity and half
#pragma unroll
  for (int i = 0; i < 4; ++i) rows[i / 2][i % 2] = {-INFINITY, 0};

  const auto copy_keys = [&](std::int64_t key) {
    copy_levels<T, width, threads>(k, problem.k, place, key, problem.length, problem.levels, keys, problem.width);
    commit_copies();
  };
  std::int64_t end = place.first < length ? length : 0;
  if (problem.causal) end = min(end, place.first + queries);
  if (end > 0) {
    copy_levels<T, width, threads>(q, problem.q, place, place.first, problem.length, problem.levels, queries,
                                   problem.width);
    copy_keys(0);
  }
  for (std::int64_t key = 0; key < end; key += keys) {
    wait_copies<0>();
    __syncthreads();
    copy_rows<T, width, threads>(v, 0, rows_of<T>(problem.v, place), problem.v.row_stride, key, problem.length, keys,
                                 problem.value_width);
    commit_copies();

    float coarse[blocks / 2][4] = {}, scores[2][blocks][4] = {};
    for (int level = problem.levels - 1; level > 0; --level) {
      float sums[blocks / 2][4] = {};
      add_coarse<T, width>(sums, q, level_base(queries, level), 16 * warp, k, level_base(keys, level), 0, level);
      const float weight = weights[level] * unit;
#pragma unroll
      for (int n = 0; n < blocks / 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) coarse[n][i] += weight * sums[n][i];
    }
    add_fine<T, width>(scores, q, 32 * warp, k, 0);
    const float weight = weights[0] * unit;
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int n = 0; n < blocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          scores[parity][n][i] = fmaf(scores[parity][n][i], weight, coarse_of(coarse, n, i / 2));

    if (key + keys > length || (problem.causal && key + keys > place.first + 32 * warp)) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity)
#pragma unroll
        for (int n = 0; n < blocks; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const std::int64_t row = place.first + first_row + parity + 16 * (i / 2);
            const std::int64_t column = key + 8 * n + 2 * (lane % 4) + i % 2;
            if (column >= length || (problem.causal && column > row)) scores[parity][n][i] = -INFINITY;
          }
    }

    wait_copies<0>();
    __syncthreads();
    if (key + keys < end) copy_keys(key + keys);

#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Softmax& row = rows[parity][half];
        float largest = row.largest;
#pragma unroll
        for (int n = 0; n < blocks; ++n)
          largest = fmaxf(largest, fmaxf(scores[parity][n][2 * half], scores[parity][n][2 * half + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        const float base = largest == -INFINITY ? 0 : largest;
        const float shrink = exp2_fast(row.largest - base);
        row.largest = largest;
        float total = row.total * shrink;
#pragma unroll
        for (int n = 0; n < blocks; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[parity][n][i] = exp2_fast(scores[parity][n][i] - base);
            total += scores[parity][n][i];
          }
        row.total = total;
#pragma unroll
        for (int n = 0; n < width / 8; ++n) {
          out[parity][n][2 * half] *= shrink;
          out[parity][n][2 * half + 1] *= shrink;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < keys / 16; ++step) {
      std::uint32_t p[2][4];
#pragma unroll
      for (int parity = 0; parity < 2; ++parity)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          p[parity][i] = pack<T>(scores[parity][2 * step + i / 2][i % 2 * 2], scores[parity][2 * step + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int n = 0; n < width / 8; n += 2) {
        std::uint32_t b[4];
        load_transposed(b, v.at(16 * step + 8 * right_chunk() + right_row(), n + right_block()));
#pragma unroll
        for (int parity = 0; parity < 2; ++parity) {
          multiply<T>(out[parity][n], p[parity], b[0], b[1]);
          multiply<T>(out[parity][n + 1], p[parity], b[2], b[3]);
        }
      }
    }
  }

  // Out through shared memory, where each warp has its rows of q no longer needed, in whole 16 bytes.
  __syncwarp();
  float* lse = static_cast<float*>(problem.lse) + (batch * problem.heads + head) * problem.length;
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Softmax& softmax = rows[parity][half];
      float total = softmax.total;
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int row = first_row + parity + 16 * half;
      const bool valid = place.first + row < length;
      const float factor = valid ? 1 / total : 0;
      if (lane % 4 == 0 && place.first + row < problem.length)
        lse[place.first + row] = valid ? (softmax.largest + log2f(total)) * ln_2 : -INFINITY;
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
        const std::uint32_t pair =
            valid ? pack<T>(out[parity][n][2 * half] * factor, out[parity][n][2 * half + 1] * factor) : 0;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(q.at(row, n) + 4 * (lane % 4)), "r"(pair) : "memory");
      }
    }
  __syncwarp();
  T* result = static_cast<T*>(problem.out.data) + batch * problem.out.batch_stride + head * problem.out.head_stride;
  for (int i = lane; i < 32 * (width / 8); i += 32) {
    const int row = 32 * warp + i / (width / 8), chunk = i % (width / 8);
    if (place.first + row >= problem.length || 8 * chunk >= problem.value_width) continue;
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(q.at(row, chunk))
                 : "memory");
    *reinterpret_cast<uint4*>(result + (place.first + row) * problem.out.row_stride + 8 * chunk) = value;
  }
}

template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device) {
  using namespace forward_tile;
  const std::int64_t blocks = problem.batch * problem.heads * ceil_divide<std::int64_t>(problem.length, queries);
  launch(forward_kernel<T, width>, dim3(static_cast<unsigned>(blocks)), threads, shared_bytes<width>(problem.levels),
         device.stream, problem);
}

}  // namespace hkt::kernels::cuda::sm80
