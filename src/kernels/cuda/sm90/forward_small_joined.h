// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths up to 64, one of two kinds of consumers: threads join the scores of levels 1 and 2 once
// for the even and the odd rows, and keep them for the odd ones in registers. Also for one level, where both kinds would
// be the same.
//
// The other kind (forward_small_summed.h) has more products. At width 32 this one is faster. Time over cuDNN's at T = 4k,
// full / causal, three levels: 0.930 / 0.934, with the other 1.026 / 1.007.
#pragma once

#include "forward_small_rows.h"

namespace hkt::kernels::cuda::sm90 {

// A warpgroup: 128 query rows of each item.
template <class T, int width, int levels>
__device__ __forceinline__ void consume_joined(const ForwardParameters& p, std::uint32_t shared, int consumer) {
  using Layout = SmallLayout<width, levels>;
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
    const std::uint32_t told = shared + Layout::parts + (2 * consumer + parity) * Layout::part;
    const int tiles = read_tiles(told);
    if (tiles < 0) break;
    float out_even[width / 2], out_odd[width / 2];
    RowState rows_even, rows_odd;
#pragma unroll
    for (int i = 0; i < width / 2; ++i) out_even[i] = out_odd[i] = 0;
    clear(rows_even);
    clear(rows_odd);

    if (tiles > 0) {
      const float c0 = read_coefficient(told, 0);
      const float c1 = levels > 1 ? read_coefficient(told, 1) : 0;
      const float c2 = levels > 1 ? read_coefficient(told, 2) : 0;
      float even[64], odd[64];          // scores
      float4 kept[8];                   // coarse scores of the tile
      float level1[32], level2[16];     // of the next tile
      std::uint32_t low[16], high[16];  // probabilities
      int limit = no_limit;

      const float* next_deep_sums;  // of a tile, in the slot
      if constexpr (Layout::deep) {
        // The slot is free: all warps of the consumer have done with the queries of its part before.
        float* const slot = deep_slot(p, 2 * blockIdx.x + consumer);
        const auto [item, first_row] = read_part(told);
        make_deep_sums<T, width, 4, DeepOrder::even_keys_first>(slot, p, item, first_row / 128, tiles);
        named_sync(1 + consumer, 128);
        copy_deep(shared + Layout::deep_sums, slot, consumer_thread());
        next_deep_sums = slot + deep_tile_bytes / 4;
      }

      DeepScores deep;
      std::uint32_t deep_sums;
      // c1 · s1 + c2 · s2 and what coarser levels add, kept for both the even and the odd rows.
      const auto join_block = [&](int j) {
        if constexpr (!Layout::deep) return join_levels(level1, level2, c1, c2, j);
        if (j == 0) {
          wait_deep();
          deep_sums = shared + Layout::deep_sums + deep_place(DeepOrder::even_keys_first, consumer_thread());
        }
        if (j % 4 == 0) deep = load_deep(deep_sums, j);
        const float add[2] = {deep_of(deep, 0, j), deep_of(deep, 1, j)};
        return join_levels(level1, level2, c1, c2, j, add);
      };
      const auto join = [&] {
        if constexpr (levels > 1) {
#pragma unroll
          for (int j = 0; j < 8; ++j) kept[j] = join_block(j);
        }
      };
      // x = c0 · s0 + the coarse scores.
      const auto weigh = [&](float (&x)[64], const RowState& rows) {
        if constexpr (levels > 1) {
#pragma unroll
          for (int j = 0; j < 8; ++j) add_coarse(x, c0, j, kept[j], rows);
        } else {
          multiply(x, c0, rows);
        }
      };
      const auto join_and_weigh_even = [&] {
        if constexpr (levels > 1) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            kept[j] = join_block(j);
            add_coarse(even, c0, j, kept[j], rows_even);
          }
        } else {
          multiply(even, c0, rows_even);
        }
      };
      const auto start_coarse = [&](std::uint64_t key) {
        if constexpr (levels > 1) {
          forget(level1);
          forget(level2);
          start_scores<T, width, 0, 0>(level2, q2, key + Layout::key2 / 16);
          start_scores<T, width, 0, 0>(level1, q1, key + Layout::key1 / 16);
        }
      };

      barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
      {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        forget(even);
        products_begin();
        start_coarse(key);
        start_scores<T, width, 0, 0>(even, q0, key);
        products_commit();
        products_wait<0>();
        pin(even);
        if constexpr (levels > 1) {
          pin(level1);
          pin(level2);
        }
        join_and_weigh_even();
      }

      // Here the even rows' scores and the coarse ones of a tile are ready; the step makes those of the next tile.
      const auto step = [&] {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        const std::uint64_t value = values + ring.stage * (Layout::value_stage / 16);
        const std::uint32_t empty_k = shared + Layout::empty_k + ring.stage * 8;
        const std::uint32_t full_v = shared + Layout::full_v + ring.stage * 8;
        const std::uint32_t empty_v = shared + Layout::empty_v + ring.stage * 8;
        const int v_parity = ring.parity;
        ring.advance();
        const std::uint64_t next_key = keys + ring.stage * (Layout::key_stage / 16);
        float factor[2];
        if constexpr (Layout::deep) {
          copy_deep(shared + Layout::deep_sums, next_deep_sums, consumer_thread());
          next_deep_sums += deep_tile_bytes / 4;
        }

        forget(odd);
        products_begin();
        start_scores<T, width, 0, 0>(odd, q0 + Layout::block / 16, key);
        products_commit();
        // Here rather than where the values are used: the compiler would start the products late.
        barrier_wait(full_v, v_parity);
        pin(even);
        if (raise_reference(even, rows_even, limit, factor)) rescale(out_even, factor);
        barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
        finish_rows<T>(even, rows_even, low, high, out_even, value);
        products_wait<2>();
        pin(odd);
        if (every_lane_arrives || lane == 0) barrier_arrive(empty_k);

        weigh(odd, rows_odd);
        if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
        pin(odd);
        if constexpr (levels > 1) {
          // The next tile's coarse scores, in the shadow of half of the exponentials; its even scores in the rest's.
          products_wait<0>();
          pin(out_even);
          pin(odd);
          products_begin();
          start_coarse(next_key);
          products_commit();
          exponentials<0, 8>(odd, rows_odd);
          pack_probabilities<T, 0>(odd, low);
          products_wait<0>();
          pin(odd);
          pin(level1);
          pin(level2);
          join();
          forget(even);
          pin(out_odd);
          pin(low);
          products_begin();
          start_scores<T, width, 0, 0>(even, q0, next_key);
          products_commit();
          start_values<T, Layout::row>(out_odd, low, value);
          products_commit();
          exponentials<8, 16>(odd, rows_odd);
          pack_probabilities<T, 8>(odd, high);
          pin(high);
          products_begin();
          start_values<T, Layout::row>(out_odd, high, value + 4 * Layout::row);
          products_commit();
          limit = room;
          products_wait<0>();
          pin(out_odd);
          pin(even);
          if (every_lane_arrives || lane == 0) barrier_arrive(empty_v);
          weigh(even, rows_even);
        } else {
          products_wait<0>();
          pin(out_even);
          pin(odd);
          forget(even);
          products_begin();
          start_scores<T, width, 0, 0>(even, q0, next_key);
          products_commit();
          finish_rows<T>(odd, rows_odd, low, high, out_odd, value);
          limit = room;
          products_wait<0>();
          pin(out_odd);
          pin(even);
          if (every_lane_arrives || lane == 0) barrier_arrive(empty_v);
          join_and_weigh_even();
        }
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

        forget(odd);
        products_begin();
        start_scores<T, width, 0, 0>(odd, q0 + Layout::block / 16, key);
        products_commit();
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
        weigh(odd, rows_odd);
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
      for (int j = 0; j + 1 < tiles; ++j) step();
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
