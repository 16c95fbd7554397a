// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, narrow (D <= 64), one of two kinds of consumers: threads join the scores of levels 1 and 2, by shuffles
// and multiply-adds, once for the even and the odd rows, and keep them for the odd ones in registers. Also for one level,
// where both kinds would be the same.
//
// The other kind (forward_narrow_summed.h) has more wgmma. At width 32 this one is faster (docs/history.md).
#pragma once

#include "sm90/forward_narrow_consumer.h"

namespace hkt::kernels::cuda::sm90 {

// The tiles of keys of one half of an item.
template <class T, int width, int levels>
struct JoinedMainloop {
  using Consumer = NarrowConsumer<width, levels>;
  using Storage = ForwardNarrowStorage<width, levels>;

  Consumer& consumer;
  const ItemHalfSlot& half;
  RowBlock<width>&even, &odd;
  float c0, c1, c2;                 // what scores of levels 0, 1 and 2 are multiplied by
  float4 coarse[8];                 // c1 · s1 + c2 · s2 and what coarser levels add, for the even and the odd rows
  float level1[32], level2[16];     // scores of the next tile
  std::uint32_t low[16], high[16];  // probabilities
  int threshold = rescale_always;
  const float* next_deep_sums;  // of a tile, in the slot
  std::uint32_t deep_sums;      // the thread's, in shared memory
  DeepScores deep;

  static __device__ __forceinline__ const ItemHalfSlot& half_slot(const Storage& storage, int consumer, int parity) {
    return storage.halves[consumer][parity];
  }

  __device__ __forceinline__ JoinedMainloop(Consumer& consumer, const ItemHalfSlot& half, RowBlock<width>& even,
                                            RowBlock<width>& odd)
      : consumer(consumer), half(half), even(even), odd(odd) {
    c0 = half.coefficient(0);
    c1 = Storage::coarse ? half.coefficient(1) : 0;
    c2 = Storage::coarse ? half.coefficient(2) : 0;
  }

  __device__ __forceinline__ void run(int tiles) {
    if constexpr (Storage::deep) make_sums(tiles);
    begin();
#pragma unroll 1
    for (int j = 0; j + 1 < tiles; ++j) step();
    finish_half<T>(*this, tiles);
  }

  // Sums of levels from 3 on, for all tiles.
  __device__ __forceinline__ void make_sums(int tiles) {
    // The deep slot is free: all warps of the consumer have done with the queries of its half before.
    float* const deep_sums_slot = deep_slot(consumer.p, consumers * blockIdx.x + consumer.index);
    const auto [item, first_row] = half.read();
    make_deep_sums<T, width, 4, DeepOrder::even_keys_first>(deep_sums_slot, consumer.p, item, first_row / 128, tiles);
    named_barrier_sync(deep_sums_barrier(consumer.index), warpgroup_threads);
    prefetch_deep(consumer.storage.deep_sums[0].address(), deep_sums_slot, consumer_thread());
    next_deep_sums = deep_sums_slot + deep_tile_bytes / 4;
  }

  __device__ __forceinline__ float4 join_block(int j) {
    if constexpr (!Storage::deep) {
      return join_levels(level1, level2, c1, c2, j);
    } else {
      if (j == 0) {
        wait_deep();
        deep_sums =
            consumer.storage.deep_sums[0].address() + deep_offset(DeepOrder::even_keys_first, consumer_thread());
      }
      if (j % 4 == 0) deep = load_deep(deep_sums, j);
      const float add[2] = {deep_of(deep, 0, j), deep_of(deep, 1, j)};
      return join_levels(level1, level2, c1, c2, j, add);
    }
  }
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int j = 0; j < 8; ++j) coarse[j] = join_block(j);
  }
  // scores = c0 · s0 + the coarse scores.
  __device__ __forceinline__ void apply_weights(RowBlock<width>& rows) {
    if constexpr (Storage::coarse) {
#pragma unroll
      for (int j = 0; j < 8; ++j) add_coarse(rows.scores, c0, j, coarse[j], rows.softmax);
    } else {
      apply_weight(rows.scores, c0, rows.softmax);
    }
  }
  __device__ __forceinline__ void apply_weights_odd() { apply_weights(odd); }
  __device__ __forceinline__ void join_and_apply_weights_even() {
    if constexpr (Storage::coarse) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        coarse[j] = join_block(j);
        add_coarse(even.scores, c0, j, coarse[j], even.softmax);
      }
    } else {
      apply_weight(even.scores, c0, even.softmax);
    }
  }

  __device__ __forceinline__ void issue_coarse_qk(std::uint64_t keys) {
    using KeyStage = typename Storage::KeyStage;
    mark_undefined(level1);
    mark_undefined(level2);
    issue_qk<T, width, 0, 0>(level2, consumer.level2_queries, keys + descriptor_offset(KeyStage::level2_offset));
    issue_qk<T, width, 0, 0>(level1, consumer.level1_queries, keys + descriptor_offset(KeyStage::level1_offset));
  }

  // The even rows' scores and the coarse ones of the first tile.
  __device__ __forceinline__ void begin() {
    consumer.wait_keys();
    const std::uint64_t keys = consumer.keys();
    mark_undefined(even.scores);
    wgmma_fence();
    if constexpr (Storage::coarse) issue_coarse_qk(keys);
    issue_qk<T, width, 0, 0>(even.scores, consumer.even_queries, keys);
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand(even.scores);
    if constexpr (Storage::coarse) {
      fence_operand(level1);
      fence_operand(level2);
    }
    join_and_apply_weights_even();
  }

  __device__ __forceinline__ void issue_odd(std::uint64_t keys) {
    mark_undefined(odd.scores);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(odd.scores, consumer.odd_queries, keys);
    wgmma_commit();
  }

  // At first the even rows' scores and the coarse ones of a tile are ready; at the end those of the next tile are.
  __device__ __forceinline__ void step() {
    Storage& storage = consumer.storage;
    const std::uint64_t keys = consumer.keys();
    const std::uint64_t values = consumer.values();
    Barrier& empty_keys = storage.empty_keys[consumer.pipeline.stage];
    Barrier& full_values = storage.full_values[consumer.pipeline.stage];
    Barrier& empty_values = storage.empty_values[consumer.pipeline.stage];
    const int values_parity = consumer.pipeline.parity;
    consumer.pipeline.advance();
    const std::uint64_t next_keys = consumer.keys();
    if constexpr (Storage::deep) {
      prefetch_deep(storage.deep_sums[0].address(), next_deep_sums, consumer_thread());
      next_deep_sums += deep_tile_bytes / 4;
    }

    issue_odd(keys);
    // Here rather than where the values are used: the compiler would issue the wgmma late.
    full_values.wait(values_parity);
    fence_operand(even.scores);
    raise_and_rescale(even, threshold);
    consumer.wait_keys();
    exponentiate_and_issue_pv<T>(even, low, high, values);
    wgmma_wait<2>();
    fence_operand(odd.scores);
    empty_keys.arrive_warp();

    apply_weights_odd();
    raise_and_rescale(odd, threshold);
    fence_operand(odd.scores);
    if constexpr (Storage::coarse)
      finish_step_coarse(next_keys, values, empty_values);
    else
      finish_step(next_keys, values, empty_values);
  }

  // With coarse levels: the odd rows' probabilities and product with the values. The next tile's coarse scores are computed in
  // the shadow of half of the exponentials, its even scores in the shadow of the rest.
  __device__ __forceinline__ void finish_step_coarse(std::uint64_t next_keys, std::uint64_t values,
                                                     Barrier& empty_values) {
    wgmma_wait<0>();
    fence_operand(even.out);
    fence_operand(odd.scores);
    wgmma_fence();
    issue_coarse_qk(next_keys);
    wgmma_commit();
    exponentiate<0, 8>(odd.scores, odd.softmax);
    pack_probabilities<T, 0>(odd.scores, low);
    wgmma_wait<0>();
    fence_operand(odd.scores);
    fence_operand(level1);
    fence_operand(level2);
    join();
    mark_undefined(even.scores);
    fence_operand(odd.out);
    fence_operand(low);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(even.scores, consumer.even_queries, next_keys);
    wgmma_commit();
    issue_pv<T, Storage::row_bytes>(odd.out, low, values);
    wgmma_commit();
    exponentiate<8, 16>(odd.scores, odd.softmax);
    pack_probabilities<T, 8>(odd.scores, high);
    fence_operand(high);
    wgmma_fence();
    issue_pv<T, Storage::row_bytes>(odd.out, high, values + descriptor_offset(64 * Storage::row_bytes));
    wgmma_commit();
    threshold = rescale_threshold;
    wgmma_wait<0>();
    fence_operand(odd.out);
    fence_operand(even.scores);
    empty_values.arrive_warp();
    apply_weights(even);
  }

  // With one level.
  __device__ __forceinline__ void finish_step(std::uint64_t next_keys, std::uint64_t values, Barrier& empty_values) {
    wgmma_wait<0>();
    fence_operand(even.out);
    fence_operand(odd.scores);
    mark_undefined(even.scores);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(even.scores, consumer.even_queries, next_keys);
    wgmma_commit();
    exponentiate_and_issue_pv<T>(odd, low, high, values);
    threshold = rescale_threshold;
    wgmma_wait<0>();
    fence_operand(odd.out);
    fence_operand(even.scores);
    empty_values.arrive_warp();
    join_and_apply_weights_even();
  }
};

}  // namespace hkt::kernels::cuda::sm90
