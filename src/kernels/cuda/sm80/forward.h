// SPDX-License-Identifier: Apache-2.0
// The forward pass on Ampere's tensor cores: a CTA takes 128 queries, a warp 32 of them, in steps of 64 keys. Of heads wider
// than 128 a CTA takes 64 queries where 128 do not fit in shared memory, and two warps share 32 of them: each takes half of the
// keys of a step, they exchange what they find, and each sums half of the output's columns.
#pragma once

#include "sm80/plan.h"
#include "sm80/tile.h"

namespace hkt::kernels::cuda::sm80 {

// How the warps of a CTA share its work.
template <int width, int tile_queries>
struct ForwardShare {
  static constexpr int queries = tile_queries, parts = forward_tile::parts<width>;
  static constexpr int threads = forward_tile::threads<width, queries>;
  static constexpr int keys = forward_tile::keys / parts, blocks = keys / 8;  // of a warp
  // Blocks of a thread's output. Narrow heads leave the tensor cores time to sum the probabilities too, as the product with
  // a block of ones.
  static constexpr bool sums_by_product = width == 32;
  static constexpr int value_blocks = width / parts / 8, out_blocks = value_blocks + sums_by_product;

  // Scores of a thread for one step, by parity of the query: rows first_row() + parity + 16 · half of the tile.
  using Scores = float[2][blocks][4];
  using Coarse = float[blocks / 2][4];
  using Out = float[2][out_blocks][4];

  __device__ static __forceinline__ int group() { return threadIdx.x / (32 * parts); }  // of 32 queries
  __device__ static __forceinline__ int part() { return threadIdx.x / 32 % parts; }
  __device__ static __forceinline__ int first_row() { return 32 * group() + 2 * (threadIdx.x % 32 / 4); }
};

// The running softmax of four rows, by parity and half. Probabilities are taken relative to `base`, a score (in base 2)
// that was the largest when it was chosen. It is chosen anew only when scores exceed it by so much that probabilities
// could overflow: seldom, so that the products summed so far need not be scaled at every step. `total` is over the
// thread's own columns.
struct Softmax {
  static constexpr float headroom = 8;
  float base[2][2], total[2][2];
};

// Scores of the levels beyond 0, by their weights, at the resolution of level 1, for the warp's 16 pairs of queries. Those of
// levels beyond 1 have the resolution of level 2 along the keys at first: four places in a row want each of them, which are
// two in each of two threads. Rows are read in such an order (bits of their number reversed) that each of these threads
// gets every second of what both want.
template <class T, class S, int fixed, int width>
__device__ __forceinline__ void coarse_scores(typename S::Coarse& coarse, Swizzled<width> q, Swizzled<width> k,
                                              int levels, const float* weights, float unit) {
  constexpr int keys = forward_tile::keys, blocks = S::blocks / 2, quad_blocks = S::blocks / 4;
  const int pair = 16 * S::group() + left_row();
  if (levels > 1) {
    const auto key_lane = [&](int block) {
      const int row = S::keys / 2 * S::part() + 8 * (block + right_block()) + permuted(right_row());
      return Lane<width>(k, level_base(keys, 1) + row, right_vector());
    };
    const Lane<width> left(q, level_base(S::queries, 1) + pair, left_vector());
    if constexpr (blocks > 2)
      small_scores<T, width, blocks>(coarse, left, {key_lane(0), key_lane(2)});
    else
      small_scores<T, width, blocks>(coarse, left, {key_lane(0)});
    const float weight = weights[1] * unit;
#pragma unroll
    for (int i = 0; i < 4 * blocks; ++i) coarse[i / 4][i % 4] *= weight;
  }
  if (levels > 2) {
    const int place = right_row(), block = quad_blocks > 1 ? right_block() : S::part();
    const int vector = quad_blocks > 1 ? right_vector() : threadIdx.x % 32 / 8;
    const int quad = 8 * block + 4 * (place % 2) + 2 * (place / 2 % 2) + place / 4;
    float total[quad_blocks][4] = {};
    for_levels<fixed>(2, levels, [&](int level) {
      float sums[quad_blocks][4];
      small_scores<T, width, quad_blocks>(
          sums, Lane<width>(q, level_base(S::queries, level) + (pair >> (level - 1)), left_vector()),
          {Lane<width>(k, level_base(keys, level) + (quad >> (level - 2)), vector)});
      const float weight = weights[level] * unit;
#pragma unroll
      for (int i = 0; i < 4 * quad_blocks; ++i) total[i / 4][i % 4] += weight * sums[i / 4][i % 4];
    });
    const bool is_odd = threadIdx.x % 2;
#pragma unroll
    for (int i = 0; i < 4 * quad_blocks; ++i) {
      const float own = total[i / 4][i % 4], other = __shfl_xor_sync(~0u, own, 1);
      const int half = i % 4 / 2;
      float (&to)[4] = coarse[i / 4 * 2 + i % 2];
      to[2 * half] += is_odd ? other : own;
      to[2 * half + 1] += is_odd ? own : other;
    }
  }
}

// scores: the products of level 0 become scores relative to the rows' base.
template <class S>
__device__ __forceinline__ void combine_levels(typename S::Scores& scores, const typename S::Coarse& coarse,
                                               float weight, const Softmax& softmax) {
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int n = 0; n < S::blocks; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shift = coarse_of(coarse, n, half) - softmax.base[parity][half];
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) scores[parity][n][i] = fmaf(scores[parity][n][i], weight, shift);
      }
}

// -infinity for keys from `key_count` on (counted from the warp's first key of the step), and for those after the query if
// `causal`; `distance`: from the first key to the first query of the tile.
template <class S>
__device__ __forceinline__ void mask_scores(typename S::Scores& scores, int key_count, bool causal, int distance) {
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = S::first_row() + parity + 16 * half;
      const int limit = (causal ? min(key_count, distance + row + 1) : key_count) - 2 * (threadIdx.x % 4);
#pragma unroll
      for (int n = 0; n < S::blocks; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i >= limit) scores[parity][n][2 * half + i] = -INFINITY;
    }
}

// The largest score of each row, of those that the thread has.
template <class S>
__device__ __forceinline__ void take_largest(float (&largest)[2][2], const typename S::Scores& scores) {
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& value = largest[parity][half];
      value = scores[parity][0][2 * half];
#pragma unroll
      for (int n = 0; n < S::blocks; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) value = fmaxf(value, scores[parity][n][i]);
    }
}

// Scores to probabilities, by the largest score of each row. At the first step, and when a score exceeds its base by too much,
// takes a new base and scales what was summed relative to the old one.
template <class S>
__device__ __forceinline__ void take_softmax(typename S::Scores& scores, Softmax& softmax, typename S::Out& out,
                                             const float (&largest)[2][2], bool is_first) {
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
        for (int n = 0; n < S::blocks; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) scores[parity][n][i] -= rise;
#pragma unroll
        for (int n = 0; n < S::out_blocks; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) out[parity][n][i] *= shrink;
      }
  }
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int n = 0; n < S::blocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[parity][n][i] = exp2_fast(scores[parity][n][i]);
        if constexpr (!S::sums_by_product) softmax.total[parity][i / 2] += scores[parity][n][i];
      }
}

// out += probabilities · values; load(step, parity, fragment): of the probabilities of 16 keys; the lane: of the values' first
// 16 rows and the warp's first 16 columns.
template <class T, class S, int width, class Load>
__device__ __forceinline__ void add_values(typename S::Out& out, const Load& load, Lane<width> values) {
  const std::uint32_t ones = pack<T>(1, 1);
#pragma unroll
  for (int step = 0; step < forward_tile::keys / 16; ++step) {
    std::uint32_t p[2][4];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) load(step, parity, p[parity]);
#pragma unroll
    for (int n = 0; n < S::value_blocks; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_trans(b, values.at(16 * step, n));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        mma<T>(out[parity][n], p[parity], b[0], b[1]);
        mma<T>(out[parity][n + 1], p[parity], b[2], b[3]);
      }
    }
    if constexpr (S::sums_by_product) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) mma<T>(out[parity][S::value_blocks], p[parity], ones, ones);
    }
  }
}

// The total of a row over all threads that have its probabilities.
template <class S>
__device__ __forceinline__ float sum_row(const typename S::Out& out, const Softmax& softmax, int parity, int half) {
  if constexpr (S::sums_by_product) return out[parity][S::value_blocks][2 * half];
  float total = softmax.total[parity][half];
  total += __shfl_xor_sync(~0u, total, 1);
  return total + __shfl_xor_sync(~0u, total, 2);
}

// Writes a warp's part of the result through shared memory, in whole 16 bytes, and lse. total_of(parity, half): of a row.
template <class T, class S, int width, class Problem, class Total>
__device__ __forceinline__ void write_result(const Problem& problem, const Place& place, const typename S::Out& out,
                                             const Softmax& softmax, const Total& total_of, Swizzled<width> scratch) {
  const int lane = threadIdx.x % 32, first_vector = S::part() * S::value_blocks;
  const Window window = window_of(problem, place.batch);  // anew, which spares registers
  float* lse = static_cast<float*>(problem.lse) + (place.batch * problem.heads + place.head) * problem.queries;
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = total_of(parity, half);
      const int row = S::first_row() + parity + 16 * half, position = place.first + row;
      const bool valid = position >= 0 && position < place.length;
      const float factor = valid ? 1 / total : 0;
      if (lane % 4 == 0 && S::part() == 0 && position >= window.first && position < window.end)
        lse[position - window.first] = valid ? (softmax.base[parity][half] + log2f(total)) * ln_2 : -INFINITY;
#pragma unroll
      for (int n = 0; n < S::value_blocks; ++n) {
        const float (&block)[4] = out[parity][n];
        st_shared_b32(scratch.at(row, first_vector + n) + 4 * (lane % 4),
                      valid ? pack<T>(block[2 * half] * factor, block[2 * half + 1] * factor) : 0);
      }
    }
  __syncwarp();
  T* result = rows_of<T>(problem.out, place);
  for (int i = lane; i < 32 * S::value_blocks; i += 32) {
    const int row = 32 * S::group() + i / S::value_blocks, vector = first_vector + i % S::value_blocks;
    const int position = place.first + row;
    if (position < window.first || position >= window.end || 8 * vector >= problem.value_width) continue;
    *reinterpret_cast<uint4*>(result + (position - window.first) * problem.out.row_stride + 8 * vector) =
        ld_shared_b32x4(scratch.at(row, vector));
  }
}

// Named barriers; 0 is that of __syncthreads. Each group of warps that share queries has one, from this number on.
enum class ForwardBarrier : int { exchange = 1 };
template <int threads>
__device__ __forceinline__ void named_barrier_sync(ForwardBarrier first, int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(first) + group), "n"(threads) : "memory");
}

// What the warps that share 32 queries exchange: the probabilities of a step, [query][key], the even queries of each 32 first;
// and a number for each row.
template <class T, class S>
struct Exchange {
  static constexpr int row_bytes = S::queries * 4;
  Swizzled<forward_tile::keys> probabilities;
  std::uint32_t numbers;

  __device__ __forceinline__ Exchange(std::uint32_t memory)
      : probabilities{memory}, numbers(memory + S::queries * Swizzled<forward_tile::keys>::pitch) {}
  __device__ static __forceinline__ void sync() {
    named_barrier_sync<32 * S::parts>(ForwardBarrier::exchange, S::group());
  }

  // A number for each row, the same in all lanes that have the row.
  __device__ __forceinline__ void write_numbers(const float (&of_rows)[2][2]) const {
    if (threadIdx.x % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      st_shared_f32(numbers + S::part() * row_bytes + 4 * (S::first_row() + i / 2 + 16 * (i % 2)),
                    of_rows[i / 2][i % 2]);
  }
  // That of the other warp.
  __device__ __forceinline__ float number(int parity, int half) const {
    return ld_shared_f32(numbers + (S::part() ^ 1) * row_bytes + 4 * (S::first_row() + parity + 16 * half));
  }
  __device__ __forceinline__ void write_probabilities(const typename S::Scores& scores) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      Lane<forward_tile::keys> to(probabilities, 32 * S::group() + lane / 4, S::part() * S::blocks);
      Lane<forward_tile::keys> lower(probabilities, 32 * S::group() + lane / 4 + 8, S::part() * S::blocks);
      to.first += 4 * (lane % 4), lower.first += 4 * (lane % 4);
#pragma unroll
      for (int n = 0; n < S::blocks; ++n) {
        const float (&block)[4] = scores[parity][n];
        st_shared_b32(to.at(16 * parity, n), pack<T>(block[0], block[1]));
        st_shared_b32(lower.at(16 * parity, n), pack<T>(block[2], block[3]));
      }
    }
  }
};

// `tiles` of queries for each head, at multiples of their size; those beyond the window are for other sequences, whose windows
// lie less well. fixed: the number of levels, or 0 if it is known only here.
template <class T, int width, int queries, int fixed, class Problem>
__global__ void __launch_bounds__(forward_tile::threads<width, queries>, width > 128  ? 1
                                                                         : width > 32 ? 2
                                                                                      : 3)
    forward_kernel(const __grid_constant__ Problem problem, int tiles) {
  using S = ForwardShare<width, queries>;
  constexpr int keys = forward_tile::keys, threads = S::threads;
  const int levels = fixed ? fixed : problem.levels;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Swizzled<width> q{static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))};
  const Swizzled<width> k = q.from_row(level_base(queries, levels));
  const Swizzled<width> v = k.from_row(level_base(keys, levels));
  const std::uint32_t after_values = v.from_row(keys).base;
  const Exchange<T, S> exchange(after_values);
  constexpr int exchanged = S::parts > 1 ? queries * keys * 2 + S::parts * queries * 4 : 0;
  Source<T>* sources = reinterpret_cast<Source<T>*>(memory + (after_values + exchanged - q.base));  // of k and v

  const std::int64_t sequence = blockIdx.x / tiles, head = sequence % problem.heads, batch = sequence / problem.heads;
  int index = blockIdx.x % tiles;
  if (problem.causal) index = tiles - 1 - index;  // long rows first
  const Window window = window_of(problem, batch);
  const int first_tile = window.first >= 0 ? window.first / queries : -((queries - 1 - window.first) / queries);
  const Place place = place_of(problem, (first_tile + index) * queries, batch, head, window.length);
  if (place.first >= window.end) return;
  const float* weights = static_cast<const float*>(problem.weights) + head * levels;
  const float unit = static_cast<float>(problem.scale) * log2_e;

  const int first_key = S::keys * S::part();  // of the warp in a step
  const ReadRows<width> q_rows(q, 32 * S::group());
  const Lane<width> k_lane(k, first_key + 8 * right_block() + right_row(), right_vector());
  const Lane<width> v_lane(v, 8 * right_vector() + right_row(), S::part() * S::value_blocks + right_block());
  typename S::Out out = {};
  Softmax softmax = {};

  const auto copy_keys = [&](int key) {
    copy_levels<T, width, threads, fixed>(k, sources, key, 0, levels, keys, problem.width);
    cp_async_commit();
  };
  int end = place.first < place.length ? place.length : 0;
  if (problem.causal) end = min(end, place.first + queries);
  if (end > 0) {
    find_sources(sources, problem.q, problem.v, levels, batch, head,
                 [&](int level) { return query_row_count(problem, window, level); });
    __syncthreads();
    copy_levels<T, width, threads, fixed, true>(q, sources, place.first, window.first, levels, queries, problem.width);
    __syncthreads();
    find_sources(sources, problem.k, problem.v, levels, batch, place.key_head,
                 [&](int level) { return level_rows(place.length, level); });
    __syncthreads();
    copy_keys(0);
  }
  for (int key = 0; key < end; key += keys) {
    cp_async_wait<0>();
    __syncthreads();
    copy_rows<T, width, threads>(v, 0, sources[levels], key, keys, problem.value_width);
    cp_async_commit();

    typename S::Coarse coarse = {};
    coarse_scores<T, S, fixed>(coarse, q, k, levels, weights, unit);
    typename S::Scores scores;
    fine_scores<T, true, width>(scores, q_rows, k_lane);
    combine_levels<S>(scores, coarse, weights[0] * unit, softmax);
    if (key + keys > place.length || (problem.causal && key + keys > place.first + 32 * S::group()))
      mask_scores<S>(scores, place.length - key - first_key, problem.causal, place.first - key - first_key);

    float largest[2][2];
    if constexpr (S::parts > 1) {
      take_largest<S>(largest, scores);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = largest[i / 4][i / 2 % 2];
        value = fmaxf(value, __shfl_xor_sync(~0u, value, 1 + i % 2));
      }
      exchange.write_numbers(largest);
    }
    cp_async_wait<0>();
    __syncthreads();
    if (key + keys < end) copy_keys(key + keys);
    if constexpr (S::parts > 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) largest[i / 2][i % 2] = fmaxf(largest[i / 2][i % 2], exchange.number(i / 2, i % 2));
    } else {
      take_largest<S>(largest, scores);
    }
    take_softmax<S>(scores, softmax, out, largest, key == 0);
    if constexpr (S::parts > 1) {
      exchange.write_probabilities(scores);
      exchange.sync();
      const Lane<keys> p_lane(exchange.probabilities, 32 * S::group() + left_row(), left_vector());
      add_values<T, S>(
          out, [&](int step, int parity, std::uint32_t (&p)[4]) { ldmatrix_x4(p, p_lane.at(16 * parity, 2 * step)); },
          v_lane);
    } else {
      add_values<T, S>(
          out,
          [&](int step, int parity, std::uint32_t (&p)[4]) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float (&block)[4] = scores[parity][2 * step + i / 2];
              p[i] = pack<T>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
            }
          },
          v_lane);
    }
  }
  __syncwarp();  // its rows of q are needed no longer
  if constexpr (S::parts > 1) {
    float totals[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) totals[i / 2][i % 2] = sum_row<S>(out, softmax, i / 2, i % 2);
    exchange.write_numbers(totals);
    exchange.sync();
    const auto total_of = [&](int parity, int half) { return totals[parity][half] + exchange.number(parity, half); };
    write_result<T, S>(problem, place, out, softmax, total_of, q);
  } else {
    const auto total_of = [&](int parity, int half) { return sum_row<S>(out, softmax, parity, half); };
    write_result<T, S>(problem, place, out, softmax, total_of, q);
  }
}

template <class T, int width, int queries, class Problem>
void start_kernel(const Problem& problem, const Device& device, std::int64_t tiles) {
  const auto kernel = problem.levels == 3   ? forward_kernel<T, width, queries, 3, Problem>
                      : problem.levels == 1 ? forward_kernel<T, width, queries, 1, Problem>
                                            : forward_kernel<T, width, queries, 0, Problem>;
  launch(kernel, grid_of(problem.batch * problem.heads * tiles), forward_tile::threads<width, queries>,
         forward_tile::shared_bytes<width, queries>(problem.levels), device.stream, problem, static_cast<int>(tiles));
}

// tiles_of(queries): how many tiles of so many queries a head has.
template <class T, int width, class Problem, class Tiles>
void start_tiles(const Problem& problem, const Device& device, const Tiles& tiles_of) {
  if (forward_tile::queries_for<width>(problem.levels, device.shared_bytes) == 128)
    start_kernel<T, width, 128>(problem, device, tiles_of(128));
  else if constexpr (width > 128)
    start_kernel<T, width, 64>(problem, device, tiles_of(64));
}

template <class T, int width>
void start_forward(const AttentionForward& problem, const Device& device) {
  start_tiles<T, width>(problem, device, [&](std::int64_t queries) {
    return ceil_divide(problem.start + problem.queries, queries) - problem.start / queries;
  });
}

// Windows begin anywhere: as many tiles as one that begins with the last position of a tile has.
template <class T, int width>
void start_extend(const AttentionExtend& problem, const Device& device) {
  start_tiles<T, width>(problem, device,
                        [&](std::int64_t queries) { return ceil_divide(problem.queries - 1, queries) + 1; });
}

}  // namespace hkt::kernels::cuda::sm80
