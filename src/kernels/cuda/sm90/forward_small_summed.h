// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for width 64 and more than one level, one of two kinds of consumers: products sum the scores. The
// product of level 2 starts from the sums of coarser levels if there are any, that of level 1 from the scores of level 2,
// whose keys lie twice for that, and the product of the odd rows from the sum.
//
// The other kind (forward_small_joined.h) has fewer products, but its threads exchange scores and keep the coarse ones, which
// at this width had to lie in shared memory. With three levels this one is faster. Time over cuDNN's, full / causal: T = 4k
// 1.132 / 1.112, with the other 1.246 / 1.135; T = 16k 1.090 / 1.055, with the other 1.250 / 1.088.
#pragma once

#include "forward_small_rows.h"

namespace hkt::kernels::cuda::sm90 {

// Products that start from coarser scores have these divided by their own weight: one of zero becomes one that counts
// for nothing.
__device__ __forceinline__ float away_from_zero(float weight) {
  constexpr float least = 0x1p-80f;  // leaves room for scores up to 2^47
  return fabsf(weight) < least ? least : weight;
}

__device__ __forceinline__ void scale(float (&x)[32], float factor) {
#pragma unroll
  for (int i = 0; i < 32; ++i) x[i] *= factor;
}

// Of the scores of level 1, element 4j + 2r + b belongs to row r of fine block 2j + b.
constexpr int coarse_element(int i) { return i / 8 * 4 + i / 2 % 2 * 2 + i / 4 % 2; }

// x = factor · the coarse scores, each at its fine ones. Of copies the compiler makes one register, and then it lets
// each product that starts from them wait for the one before; hence an instruction it does not know.
__device__ __forceinline__ void start_from_coarse(float (&x)[64], const float (&coarse)[32], float factor) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    asm volatile("mul.f32 %0, %1, %2;" : "=f"(x[i]) : "f"(coarse[coarse_element(i)]), "f"(factor));
}

// x = what levels from 3 on have for the thread's rows r and r + 8 of level 2, whose sums begin at `sums`. With its scores of
// level 2 a thread has all keys of level 3.
__device__ __forceinline__ void start_from_deep(float (&x)[32], std::uint32_t sums) {
  wait_deep();
#pragma unroll
  for (int i = 0; i < 16; ++i) {  // two keys of a row
    const float2 two = sm80::load_floats(sums + i % 2 * (4 * deep_row_bytes) + i / 2 * 8);
    x[2 * i] = two.x;
    x[2 * i + 1] = two.y;
  }
  pin(x);
}

// x = c0 · s0 + c1 · the coarse scores - the rows' reference.
__device__ __forceinline__ void add_coarse(float (&x)[64], float c0, const float (&coarse)[32], float c1,
                                           const RowState& rows) {
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = fmaf(x[i], c0, fmaf(coarse[coarse_element(i)], c1, -rows.reference[i / 2 % 2]));
}

// A warpgroup: 128 query rows of each item.
template <class T, int width, int levels>
__device__ __forceinline__ void consume_summed(const ForwardParameters& p, std::uint32_t shared, int consumer) {
  using Layout = SmallLayout<width, levels>;
  static_assert(levels >= 3);
  constexpr int swizzle = Layout::row;
  const int lane = threadIdx.x % 32;
  const int place = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int row_in_block = 4 * (place % 32) + 2 * (place / 32);
  const std::uint64_t q0 = descriptor<swizzle>(shared + Layout::q0 + 2 * consumer * Layout::block);
  const std::uint64_t q1 = descriptor<swizzle>(shared + Layout::q1 + consumer * Layout::block);
  const std::uint64_t q2 = descriptor<swizzle>(shared + Layout::q2 + consumer * Layout::block);
  const std::uint64_t keys = descriptor<swizzle>(shared + Layout::keys);
  const std::uint64_t values = descriptor<swizzle>(shared + Layout::values);
  const std::uint32_t full_q = shared + Layout::full_q + consumer * 8;
  const std::uint32_t empty_q = shared + Layout::empty_q + consumer * 8;
  Ring<Layout::stages> ring;
  for (int parity = 0;; parity ^= 1) {
    barrier_wait(full_q, parity);
    // From the number of the thread: a value that all threads of a warp share would need a uniform register, and those are
    // all taken.
    const std::uint32_t told = shared + Layout::parts + (threadIdx.x / 128 * 2 + parity - 2) * Layout::part;
    const int tiles = read_tiles(told);
    if (tiles < 0) break;
    float out_even[width / 2], out_odd[width / 2];
    RowState rows_even, rows_odd;
#pragma unroll
    for (int i = 0; i < width / 2; ++i) out_even[i] = out_odd[i] = 0;
    clear(rows_even);
    clear(rows_odd);

    if (tiles > 0) {
      // In the scale of a finer level: coarse = s1 + (s2 + the sums of coarser levels / c2) · c2 / c1, and the odd rows'
      // scores are s0 + coarse · c1 / c0.
      const float c0 = away_from_zero(read_coefficient(told, 0));
      const float c1 = away_from_zero(read_coefficient(told, 1));
      const float c2 = Layout::deep ? away_from_zero(read_coefficient(told, 2)) : read_coefficient(told, 2);
      const float c2_to_1 = c2 / c1;
      const float c1_to_0 = c1 / c0;
      float even[64], odd[64];  // scores
      float coarse[32];
      std::uint32_t low[16], high[16];  // probabilities
      int limit = no_limit;

      const auto copy_deep_sums = [&](int j) {
        const int thread = consumer_thread();
        copy_deep(shared + Layout::deep_sums, deep_slot(p, 2 * blockIdx.x + thread / 128) + j * (deep_tile_bytes / 4),
                  thread);
      };
      if constexpr (Layout::deep) {
        // The slot is free: all warps of the consumer have done with the queries of its part before.
        const auto [item, first_row] = read_part(told);
        make_deep_sums<T, width, 4, DeepOrder::natural>(deep_slot(p, 2 * blockIdx.x + consumer), p, item,
                                                        first_row / 128, tiles, 1 / c2);
        named_sync(1 + consumer, 128);
        copy_deep_sums(0);
      }

      const auto start_level2 = [&](std::uint64_t key) {
        if constexpr (Layout::deep)
          start_from_deep(coarse, shared + Layout::deep_sums + deep_place(DeepOrder::natural, consumer_thread()));
        else
          forget(coarse);
        products_begin();
        start_scores<T, width, 0, 0>(coarse, q2, key + Layout::key2 / 16, Layout::deep);
        products_commit();
      };
      const auto start_level1 = [&](std::uint64_t key) {
        pin(coarse);
        scale(coarse, c2_to_1);
        pin(coarse);
        products_begin();
        start_scores<T, width, 0, 0>(coarse, q1, key + Layout::key1 / 16, true);
        products_commit();
      };
      const auto start_even = [&](std::uint64_t key) {
        forget(even);
        products_begin();
        start_scores<T, width, 0, 0>(even, q0, key);
        products_commit();
      };
      const auto start_odd = [&](std::uint64_t key) {
        start_from_coarse(odd, coarse, c1_to_0);
        pin(odd);
        products_begin();
        start_scores<T, width, 0, 0>(odd, q0 + Layout::block / 16, key, true);
        products_commit();
      };
      const auto weigh_even = [&] { add_coarse(even, c0, coarse, c1, rows_even); };

      barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
      {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        start_level2(key);
        start_even(key);
        products_wait<1>();
        start_level1(key);
        products_wait<0>();
        pin(even);
        pin(coarse);
        weigh_even();
      }

      // Here the even rows' scores and the coarse ones of a tile are ready; the step makes those of the next tile.
      // Each product is started where exponentials follow that hide it and registers are free for it.
      const auto step = [&](int j) {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        const std::uint64_t value = values + ring.stage * (Layout::value_stage / 16);
        const std::uint32_t empty_k = shared + Layout::empty_k + ring.stage * 8;
        const std::uint32_t full_v = shared + Layout::full_v + ring.stage * 8;
        const std::uint32_t empty_v = shared + Layout::empty_v + ring.stage * 8;
        const int v_parity = ring.parity;
        ring.advance();
        const std::uint64_t next_key = keys + ring.stage * (Layout::key_stage / 16);
        float factor[2];

        if constexpr (Layout::deep) copy_deep_sums(j + 1);
        start_odd(key);
        // Here rather than where the values are used: the compiler would start the products late.
        barrier_wait(full_v, v_parity);
        pin(even);
        if (raise_reference(even, rows_even, limit, factor)) rescale(out_even, factor);
        exponentials<0, 8, true>(even, rows_even);
        pack_probabilities<T, 0>(even, low);
        pin(out_even);
        pin(low);
        products_begin();
        start_values<T, Layout::row>(out_even, low, value);
        products_commit();
        exponentials<8, 16, true>(even, rows_even);
        pack_probabilities<T, 8>(even, high);
        barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
        pin(high);
        start_level2(next_key);
        products_begin();
        start_values<T, Layout::row>(out_even, high, value + 4 * Layout::row);
        products_commit();

        products_wait<2>();
        pin(odd);
        if (every_lane_arrives || lane == 0) barrier_arrive(empty_k);
        multiply(odd, c0, rows_odd);
        if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
        pin(odd);
        products_wait<1>();
        start_level1(next_key);
        exponentials<0, 8, true>(odd, rows_odd);
        pack_probabilities<T, 0>(odd, low);
        pin(out_odd);
        pin(low);
        start_even(next_key);
        products_begin();
        start_values<T, Layout::row>(out_odd, low, value);
        products_commit();
        products_wait<2>();
        pin(out_even);
        pin(coarse);
        end_section(rows_odd.sum[0]);
        exponentials<8, 16, true>(odd, rows_odd);
        pack_probabilities<T, 8>(odd, high);
        pin(high);
        products_begin();
        start_values<T, Layout::row>(out_odd, high, value + 4 * Layout::row);
        products_commit();
        limit = room;
        products_wait<2>();
        pin(even);
        pin(coarse);
        weigh_even();
        products_wait<0>();
        pin(out_odd);
        pin(even);
        if (every_lane_arrives || lane == 0) barrier_arrive(empty_v);
      };
      // The last tile, the only one with a mask.
      const auto finish = [&] {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        const std::uint64_t value = values + ring.stage * (Layout::value_stage / 16);
        const auto [item, first_row] = read_part(told);
        const bool masked = needs_mask(p, item, first_row, tiles);
        const int first_key = (tiles - 1) * key_rows + 2 * (lane % 4);
        const int row = first_row + row_in_block;
        float factor[2];

        start_odd(key);
        barrier_wait(shared + Layout::full_v + ring.stage * 8, ring.parity);
        pin(even);
        if (masked) mask(even, last_key(p, item, row) - first_key, last_key(p, item, row + 32) - first_key);
        if (raise_reference(even, rows_even, limit, factor)) rescale(out_even, factor);
        finish_rows<T>(even, rows_even, low, high, out_even, value);
        products_wait<2>();
        pin(odd);
        if (every_lane_arrives || lane == 0) {
          barrier_arrive(shared + Layout::empty_k + ring.stage * 8);
          barrier_arrive(empty_q);
        }
        multiply(odd, c0, rows_odd);
        if (masked) mask(odd, last_key(p, item, row + 1) - first_key, last_key(p, item, row + 33) - first_key);
        if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
        pin(odd);
        products_wait<0>();
        pin(out_even);
        pin(odd);
        finish_rows<T>(odd, rows_odd, low, high, out_odd, value);
        products_wait<0>();
        pin(out_odd);
        if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_v + ring.stage * 8);
        ring.advance();
      };
#pragma unroll 1
      for (int j = 0; j + 1 < tiles; ++j) step(j);
      finish();
    } else if (every_lane_arrives || lane == 0) {
      barrier_arrive(empty_q);
    }

    skip_tiles<width, levels>(ring, shared, read_skipped(told));
    const auto [item, first_row] = read_part(told);
    write_rows<T>(p, item, first_row + row_in_block, out_even, rows_even);
    write_rows<T>(p, item, first_row + row_in_block + 1, out_odd, rows_odd);
  }
}

}  // namespace hkt::kernels::cuda::sm90
