// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, narrow (D <= 64), one of two kinds of consumers, for width 64 and more than one level: wgmma sums the
// scores of the levels in its accumulators. Level 2 starts from the sums of coarser levels if there are any, level 1 from
// the scores of level 2, whose keys lie twice for that, and the odd rows of level 0 from the sum of all these. To the even
// rows, whose wgmma runs beside that of level 1, threads add the sum.
//
// The other kind (forward_narrow_joined.h) has less wgmma, but its threads exchange scores and keep the coarse ones, for which
// there are no registers at this width. With three levels this one is faster (docs/history.md, forward 4).
#pragma once

#include "sm90/forward_narrow_consumer.h"

namespace hkt::kernels::cuda::sm90 {

// An accumulator that starts from coarser scores has these divided by its own weight. A weight of zero becomes one that is
// too small to matter.
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

// x = factor · the coarse scores, each at its fine ones. The compiler would keep equal elements in one register, and then each
// wgmma that starts from them waits for the one before; hence an instruction that it cannot see through.
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
    const float2 two = ld_shared_f32x2(sums + i % 2 * (4 * deep_sum_row_bytes) + i / 2 * 8);
    x[2 * i] = two.x;
    x[2 * i + 1] = two.y;
  }
  fence_operand(x);
}

// x = c0 · s0 + c1 · the coarse scores - the rows' reference.
__device__ __forceinline__ void add_coarse(float (&x)[64], float c0, const float (&coarse)[32], float c1,
                                           const SoftmaxState& rows) {
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = fmaf(x[i], c0, fmaf(coarse[coarse_element(i)], c1, -rows.reference[i / 2 % 2]));
}

// The tiles of keys of one half of an item.
template <class T, int width, int levels>
struct SummedMainloop {
  using Consumer = NarrowConsumer<width, levels>;
  using Storage = ForwardNarrowStorage<width, levels>;
  using KeyStage = typename Storage::KeyStage;
  static_assert(Storage::summed);

  Consumer& consumer;
  const ItemHalfSlot& half;
  RowBlock<width>&even, &odd;
  // What scores of levels 0 and 1 are multiplied by. In the scale of the finer level: coarse = s1 + (s2 + the sums of coarser
  // levels / c2) · c2 / c1, and the odd rows' scores are s0 + coarse · c1 / c0.
  float c0, c1, c2_to_1, c1_to_0;
  float inverse_c2;                 // with levels from 3 on
  float coarse[32];                 // scores of levels from 1 on: of the tile until issue_odd, then of the next one
  std::uint32_t low[16], high[16];  // probabilities
  int threshold = rescale_always;

  // By the thread's number, not by the index, which is uniform and would take a uniform register: those are all used.
  static __device__ __forceinline__ const ItemHalfSlot& half_slot(const Storage& storage, int, int parity) {
    return storage.halves[threadIdx.x / warpgroup_threads - first_consumer_warpgroup][parity];
  }

  __device__ __forceinline__ SummedMainloop(Consumer& consumer, const ItemHalfSlot& half, RowBlock<width>& even,
                                            RowBlock<width>& odd)
      : consumer(consumer), half(half), even(even), odd(odd) {
    c0 = away_from_zero(half.coefficient(0));
    c1 = away_from_zero(half.coefficient(1));
    const float c2 = Storage::deep ? away_from_zero(half.coefficient(2)) : half.coefficient(2);
    c2_to_1 = c2 / c1;
    c1_to_0 = c1 / c0;
    if constexpr (Storage::deep) inverse_c2 = 1 / c2;
  }

  __device__ __forceinline__ void run(int tiles) {
    if constexpr (Storage::deep) make_sums(tiles);
    begin();
#pragma unroll 1
    for (int j = 0; j + 1 < tiles; ++j) step(j);
    finish_half<T>(*this, tiles);
  }

  // Sums of levels from 3 on, for all tiles.
  __device__ __forceinline__ void make_sums(int tiles) {
    // The deep slot is free: all warps of the consumer have done with the queries of its half before.
    const auto [item, first_row] = half.read();
    make_deep_sums<T, width, 4, DeepOrder::natural>(deep_slot(consumer.p, consumers * blockIdx.x + consumer.index),
                                                    consumer.p, item, first_row / 128, tiles, inverse_c2);
    named_barrier_sync(deep_sums_barrier(consumer.index), warpgroup_threads);
    prefetch_sums(0);
  }
  __device__ __forceinline__ void prefetch_sums(int tile) {
    const int thread = consumer_thread();
    const float* const slot = deep_slot(consumer.p, consumers * blockIdx.x + thread / warpgroup_threads);
    prefetch_deep(consumer.storage.deep_sums[0].address(), slot + tile * (deep_tile_bytes / 4), thread);
  }

  __device__ __forceinline__ void issue_level2(std::uint64_t keys) {
    if constexpr (Storage::deep)
      start_from_deep(coarse,
                      consumer.storage.deep_sums[0].address() + deep_offset(DeepOrder::natural, consumer_thread()));
    else
      mark_undefined(coarse);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(coarse, consumer.level2_queries, keys + descriptor_offset(KeyStage::level2_offset),
                             Storage::deep);
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_level1(std::uint64_t keys) {
    fence_operand(coarse);
    scale(coarse, c2_to_1);
    fence_operand(coarse);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(coarse, consumer.level1_queries, keys + descriptor_offset(KeyStage::level1_offset), true);
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_even(std::uint64_t keys) {
    mark_undefined(even.scores);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(even.scores, consumer.even_queries, keys);
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_odd(std::uint64_t keys) {
    start_from_coarse(odd.scores, coarse, c1_to_0);
    fence_operand(odd.scores);
    wgmma_fence();
    issue_qk<T, width, 0, 0>(odd.scores, consumer.odd_queries, keys, true);
    wgmma_commit();
  }

  __device__ __forceinline__ void apply_weights_odd() { apply_weight(odd.scores, c0, odd.softmax); }

  // The even rows' scores and the coarse ones of the first tile.
  __device__ __forceinline__ void begin() {
    consumer.wait_keys();
    const std::uint64_t keys = consumer.keys();
    issue_level2(keys);
    issue_even(keys);
    wgmma_wait<1>();
    issue_level1(keys);
    wgmma_wait<0>();
    fence_operand(even.scores);
    fence_operand(coarse);
    add_coarse(even.scores, c0, coarse, c1, even.softmax);
  }

  // At first the even rows' scores and the coarse ones of a tile are ready; at the end those of the next tile are. Each wgmma
  // is issued where exponentials follow that hide it and registers are free for it.
  __device__ __forceinline__ void step(int tile) {
    Storage& storage = consumer.storage;
    const std::uint64_t keys = consumer.keys();
    const std::uint64_t values = consumer.values();
    Barrier& empty_keys = storage.empty_keys[consumer.pipeline.stage];
    Barrier& full_values = storage.full_values[consumer.pipeline.stage];
    Barrier& empty_values = storage.empty_values[consumer.pipeline.stage];
    const int values_parity = consumer.pipeline.parity;
    consumer.pipeline.advance();
    const std::uint64_t next_keys = consumer.keys();

    if constexpr (Storage::deep) prefetch_sums(tile + 1);
    issue_odd(keys);
    // Here rather than where the values are used: the compiler would issue the wgmma late.
    full_values.wait(values_parity);
    fence_operand(even.scores);
    step_even(next_keys, values);
    wgmma_wait<2>();
    fence_operand(odd.scores);
    empty_keys.arrive_warp();
    step_odd(next_keys, values);
    empty_values.arrive_warp();
  }

  // The even rows' probabilities and their product with the values, while the odd rows' scores are computed.
  __device__ __forceinline__ void step_even(std::uint64_t next_keys, std::uint64_t values) {
    raise_and_rescale(even, threshold);
    exponentiate<0, 8, true>(even.scores, even.softmax);
    pack_probabilities<T, 0>(even.scores, low);
    fence_operand(even.out);
    fence_operand(low);
    wgmma_fence();
    issue_pv<T, Storage::row_bytes>(even.out, low, values);
    wgmma_commit();
    exponentiate<8, 16, true>(even.scores, even.softmax);
    pack_probabilities<T, 8>(even.scores, high);
    consumer.wait_keys();
    fence_operand(high);
    issue_level2(next_keys);
    wgmma_fence();
    issue_pv<T, Storage::row_bytes>(even.out, high, values + descriptor_offset(64 * Storage::row_bytes));
    wgmma_commit();
  }

  // The odd rows' probabilities and their product with the values, while the next tile's scores are computed.
  __device__ __forceinline__ void step_odd(std::uint64_t next_keys, std::uint64_t values) {
    apply_weights_odd();
    raise_and_rescale(odd, threshold);
    fence_operand(odd.scores);
    wgmma_wait<1>();
    issue_level1(next_keys);
    exponentiate<0, 8, true>(odd.scores, odd.softmax);
    pack_probabilities<T, 0>(odd.scores, low);
    fence_operand(odd.out);
    fence_operand(low);
    issue_even(next_keys);
    wgmma_fence();
    issue_pv<T, Storage::row_bytes>(odd.out, low, values);
    wgmma_commit();
    wgmma_wait<2>();
    fence_operand(even.out);
    fence_operand(coarse);
    scheduling_fence(odd.softmax.sum[0]);
    exponentiate<8, 16, true>(odd.scores, odd.softmax);
    pack_probabilities<T, 8>(odd.scores, high);
    fence_operand(high);
    wgmma_fence();
    issue_pv<T, Storage::row_bytes>(odd.out, high, values + descriptor_offset(64 * Storage::row_bytes));
    wgmma_commit();
    threshold = rescale_threshold;
    wgmma_wait<2>();
    fence_operand(even.scores);
    fence_operand(coarse);
    add_coarse(even.scores, c0, coarse, c1, even.softmax);
    wgmma_wait<0>();
    fence_operand(odd.out);
    fence_operand(even.scores);
  }
};

}  // namespace hkt::kernels::cuda::sm90
