// SPDX-License-Identifier: Apache-2.0
// The forward pass on Ampere's tensor cores: 128 queries a block, four warps, steps of 64 keys.
#pragma once

#include "sm80/plan.h"
#include "sm80/tile.h"

namespace hkt::kernels::cuda::sm80 {

// Scores of a thread for one step, by parity of the query: rows `first_row` + parity + 16 · half of the tile.
inline constexpr int forward_blocks = forward_tile::keys / 8;
using Scores = float[2][forward_blocks][4];
__device__ __forceinline__ int first_row() { return 32 * (threadIdx.x / 32) + 2 * (threadIdx.x % 32 / 4); }

// The running softmax of four rows, by parity and half. Probabilities are taken relative to `base`, a score (in base 2)
// that was the largest when it was chosen. It is chosen anew only when scores exceed it by so much that probabilities
// could overflow: seldom, so that the products summed so far need not be scaled at every step. `total` is over the
// thread's own columns.
struct Softmax {
  static constexpr float headroom = 8;
  float base[2][2], total[2][2];
};

// Blocks of a thread's output. Narrow heads leave the tensor cores time to sum the probabilities too, as the product with a
// block of ones.
template <int width>
inline constexpr bool sums_by_product = width == 32;
template <int width>
inline constexpr int out_blocks = width / 8 + sums_by_product<width>;

// Scores of the levels beyond 0, by their weights, at the resolution of level 1, for the warp's 16 pairs of queries. Those of
// levels beyond 1 have the resolution of level 2 along the keys at first: four places in a row want each of them, which are
// two in each of two threads. Rows are read in such an order (bits of their number reversed) that each of these threads
// gets every second of what both want.
template <class T, int width, int fixed>
__device__ __forceinline__ void coarse_scores(float (&coarse)[forward_blocks / 2][4], Swizzled<width> q,
                                              Swizzled<width> k, int levels, const float* weights, float unit) {
  using namespace forward_tile;
  const int pair = 16 * (threadIdx.x / 32) + left_row();
  if (levels > 1) {
    const auto key_lane = [&](int block) {
      return Lane<width>(k, level_base(keys, 1) + 8 * (block + right_block()) + permuted(right_row()), right_chunk());
    };
    small_scores<T, width, forward_blocks / 2>(coarse, Lane<width>(q, level_base(queries, 1) + pair, left_chunk()),
                                               {key_lane(0), key_lane(2)});
    const float weight = weights[1] * unit;
#pragma unroll
    for (int i = 0; i < 2 * forward_blocks; ++i) coarse[i / 4][i % 4] *= weight;
  }
  if (levels > 2) {
    const int place = right_row(), quad = 8 * right_block() + 4 * (place % 2) + 2 * (place / 2 % 2) + place / 4;
    float total[2][4] = {};
    for_levels<fixed>(2, levels, [&](int level) {
      float sums[2][4];
      small_scores<T, width, 2>(sums, Lane<width>(q, level_base(queries, level) + (pair >> (level - 1)), left_chunk()),
                                {Lane<width>(k, level_base(keys, level) + (quad >> (level - 2)), right_chunk())});
      const float weight = weights[level] * unit;
#pragma unroll
      for (int i = 0; i < 8; ++i) total[i / 4][i % 4] += weight * sums[i / 4][i % 4];
    });
    const bool is_odd = threadIdx.x % 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float own = total[i / 4][i % 4], other = __shfl_xor_sync(~0u, own, 1);
      const int half = i % 4 / 2;
      float (&block)[4] = coarse[i / 4 * 2 + i % 2];
      block[2 * half] += is_odd ? other : own;
      block[2 * half + 1] += is_odd ? own : other;
    }
  }
}

// scores: the products of level 0 become scores relative to the rows' base.
__device__ __forceinline__ void combine_levels(Scores& scores, const float (&coarse)[forward_blocks / 2][4],
                                               float weight, const Softmax& softmax) {
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int n = 0; n < forward_blocks; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shift = coarse_of(coarse, n, half) - softmax.base[parity][half];
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) scores[parity][n][i] = fmaf(scores[parity][n][i], weight, shift);
      }
}

// -infinity for keys from `key_count` on (counted from the first key of the step), and for those after the query if
// `causal`; `distance`: from the first key to the first query of the tile.
__device__ __forceinline__ void mask_scores(Scores& scores, int key_count, bool causal, int distance) {
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row() + parity + 16 * half;
      const int limit = (causal ? min(key_count, distance + row + 1) : key_count) - 2 * (threadIdx.x % 4);
#pragma unroll
      for (int n = 0; n < forward_blocks; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i >= limit) scores[parity][n][2 * half + i] = -INFINITY;
    }
}

// Scores to probabilities. At the first step, and when a score exceeds its base by too much, takes a new base and scales
// what was summed relative to the old one.
template <int width>
__device__ __forceinline__ void take_softmax(Scores& scores, Softmax& softmax, float (&out)[2][out_blocks<width>][4],
                                             bool is_first) {
  float largest[2][2];
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& value = largest[parity][half];
      value = scores[parity][0][2 * half];
#pragma unroll
      for (int n = 0; n < forward_blocks; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) value = fmaxf(value, scores[parity][n][i]);
    }
  const float all = fmaxf(fmaxf(largest[0][0], largest[0][1]), fmaxf(largest[1][0], largest[1][1]));
  if (is_first || __any_sync(~0u, all > Softmax::headroom)) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float rise = largest[parity][half];
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        // Each row by its own scores only, so that no row's bits depend on another's.
        if (!is_first && !(rise > Softmax::headroom)) rise = 0;
        const float shrink = is_first ? 0 : exp2_fast(-rise);
        softmax.base[parity][half] += rise;
        softmax.total[parity][half] *= shrink;
#pragma unroll
        for (int n = 0; n < forward_blocks; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) scores[parity][n][i] -= rise;
#pragma unroll
        for (int n = 0; n < out_blocks<width>; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) out[parity][n][i] *= shrink;
      }
  }
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int n = 0; n < forward_blocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[parity][n][i] = exp2_fast(scores[parity][n][i]);
        if constexpr (!sums_by_product<width>) softmax.total[parity][i / 2] += scores[parity][n][i];
      }
}

// out += probabilities · values; the lane: of the values' first 16 rows and 16 columns.
template <class T, int width>
__device__ __forceinline__ void add_values(float (&out)[2][out_blocks<width>][4], const Scores& scores,
                                           Lane<width> values) {
  const std::uint32_t ones = pack<T>(1, 1);
#pragma unroll
  for (int step = 0; step < forward_tile::keys / 16; ++step) {
    std::uint32_t p[2][4];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&block)[4] = scores[parity][2 * step + i / 2];
        p[parity][i] = pack<T>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int n = 0; n < width / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_trans(b, values.at(16 * step, n));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        mma<T>(out[parity][n], p[parity], b[0], b[1]);
        mma<T>(out[parity][n + 1], p[parity], b[2], b[3]);
      }
    }
    if constexpr (sums_by_product<width>) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) mma<T>(out[parity][width / 8], p[parity], ones, ones);
    }
  }
}

// Writes a warp's 32 rows of the result through shared memory, in whole 16 bytes, and lse.
template <class T, int width>
__device__ __forceinline__ void write_result(const AttentionForward& problem, const Place& place,
                                             const float (&out)[2][out_blocks<width>][4], const Softmax& softmax,
                                             Swizzled<width> scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* lse = static_cast<float*>(problem.lse) + (place.batch * problem.heads + place.head) * problem.length;
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = softmax.total[parity][half];
      if constexpr (sums_by_product<width>) {
        total = out[parity][width / 8][2 * half];
      } else {
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
      }
      const int row = first_row() + parity + 16 * half;
      const bool valid = place.first + row < place.length;
      const float factor = valid ? 1 / total : 0;
      if (lane % 4 == 0 && place.first + row < problem.length)
        lse[place.first + row] = valid ? (softmax.base[parity][half] + log2f(total)) * ln_2 : -INFINITY;
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
        const float (&block)[4] = out[parity][n];
        st_shared_b32(scratch.at(row, n) + 4 * (lane % 4),
                      valid ? pack<T>(block[2 * half] * factor, block[2 * half + 1] * factor) : 0);
      }
    }
  __syncwarp();
  T* result = rows_of<T>(problem.out, place);
  for (int i = lane; i < 32 * (width / 8); i += 32) {
    const int row = 32 * warp + i / (width / 8), chunk = i % (width / 8);
    if (place.first + row >= problem.length || 8 * chunk >= problem.value_width) continue;
    *reinterpret_cast<uint4*>(result + (place.first + row) * problem.out.row_stride + 8 * chunk) =
        ld_shared_b32x4(scratch.at(row, chunk));
  }
}

// fixed: the number of levels, or 0 if it is known only here.
template <class T, int width, int fixed>
__global__ void __launch_bounds__(forward_tile::threads, width > 32 ? 2 : 3)
    forward_kernel(const __grid_constant__ AttentionForward problem) {
  using namespace forward_tile;
  const int levels = fixed ? fixed : problem.levels, length = static_cast<int>(problem.length);
  extern __shared__ __align__(1024) unsigned char memory[];
  const Swizzled<width> q{static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))};
  const Swizzled<width> k = q.from_row(level_base(queries, levels));
  const Swizzled<width> v = k.from_row(level_base(keys, levels));
  Source<T>* sources = reinterpret_cast<Source<T>*>(memory + (v.from_row(keys).base - q.base));  // of k and v

  const int tiles = (length + queries - 1) / queries;
  const std::int64_t sequence = blockIdx.x / tiles, head = sequence % problem.heads, batch = sequence / problem.heads;
  int index = blockIdx.x % tiles;
  if (problem.causal) index = tiles - 1 - index;  // long rows first
  const Place place{index * queries, head, batch, valid_length(problem, batch)};
  const float* weights = static_cast<const float*>(problem.weights) + head * levels;
  const float unit = static_cast<float>(problem.scale) * log2_e;

  const int warp = threadIdx.x / 32;
  const ReadRows<width> q_rows(q, 32 * warp);
  const Lane<width> k_lane(k, 8 * right_block() + right_row(), right_chunk());
  const Lane<width> v_lane(v, 8 * right_chunk() + right_row(), right_block());
  float out[2][out_blocks<width>][4] = {};
  Softmax softmax = {};

  const auto copy_keys = [&](int key) {
    copy_levels<T, width, threads, fixed>(k, sources, key, length, levels, keys, problem.width);
    cp_async_commit();
  };
  int end = place.first < place.length ? place.length : 0;
  if (problem.causal) end = min(end, place.first + queries);
  if (end > 0) {
    find_sources(sources, problem.q, problem.v, levels, place);
    __syncthreads();
    copy_levels<T, width, threads, fixed>(q, sources, place.first, length, levels, queries, problem.width);
    __syncthreads();
    find_sources(sources, problem.k, problem.v, levels, place);
    __syncthreads();
    copy_keys(0);
  }
  for (int key = 0; key < end; key += keys) {
    cp_async_wait<0>();
    __syncthreads();
    copy_rows<T, width, threads>(v, 0, sources[levels], key, length, keys, problem.value_width);
    cp_async_commit();

    float coarse[forward_blocks / 2][4] = {};
    coarse_scores<T, width, fixed>(coarse, q, k, levels, weights, unit);
    Scores scores;
    fine_scores<T, true, width>(scores, q_rows, k_lane);
    combine_levels(scores, coarse, weights[0] * unit, softmax);
    if (key + keys > place.length || (problem.causal && key + keys > place.first + 32 * warp))
      mask_scores(scores, place.length - key, problem.causal, place.first - key);

    cp_async_wait<0>();
    __syncthreads();
    if (key + keys < end) copy_keys(key + keys);
    take_softmax<width>(scores, softmax, out, key == 0);
    add_values<T, width>(out, scores, v_lane);
  }
  __syncwarp();  // its rows of q are needed no longer
  write_result<T, width>(problem, place, out, softmax, q);
}

template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device) {
  using namespace forward_tile;
  const std::int64_t blocks = problem.batch * problem.heads * ceil_divide<std::int64_t>(problem.length, queries);
  const auto kernel = problem.levels == 3   ? forward_kernel<T, width, 3>
                      : problem.levels == 1 ? forward_kernel<T, width, 1>
                                            : forward_kernel<T, width, 0>;
  launch(kernel, grid_of(blocks), threads, shared_bytes<width>(problem.levels), device.stream, problem);
}

}  // namespace hkt::kernels::cuda::sm80
