// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths above 64: the warpgroup that has the coarse levels.
#pragma once

#include "backward_128_late.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

// An operand of products, described anew each time: there are no registers to keep it in.
template <int swizzle>
__device__ __forceinline__ std::uint64_t operand(std::uint32_t shared, int place) {
  return descriptor<swizzle>(again(shared) + place);
}

// A warpgroup: coarse scores, and sums for coarse queries, whose rows are columns of the model. While sums of one kind
// are added, products for the next run. Gradients of scores also go to the block's slot, for the gradients of keys.
template <class T, bool deep>
__device__ __forceinline__ void backward_wide_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                     std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
  const float c1 = log2_e * weight(p, work, 1), c2 = log2_e * weight(p, work, 2);
  if constexpr (deep) named_sync(7, 384);  // their scores are there
  const auto deep_tile = [&](int i) {
    return deep_slot(p, again(shared) + Layout::slot) + work.query_tile(i) * deep_tile_size;
  };
  barrier_wait(shared + Layout::full_keys, 0);
  Ring<Layout::coarse_stages> ring;  // of coarse queries
  const auto make_scores = [&](int i) {
    const std::uint64_t q1 = operand<128>(shared, Layout::coarse + ring.stage * Layout::coarse_stage);
    const std::uint64_t q2 = q1 + Layout::q2 / 16;
    const std::uint32_t keys = again(shared) + Layout::k2 + warp * 8 * Layout::row;
    float scores1[16], scores2[8], deep_scores[2];
    std::uint32_t level_2_keys[8];  // of one panel
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys, lane);
    barrier_wait(shared + Layout::full_coarse + ring.stage * 8, ring.parity);
    release(scores1);
    release(scores2);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(scores2, level_2_keys, q2, false);
    products_commit();
    start_product<T, 128, Layout::key1_panel, Layout::q1_panel>(scores1, operand<128>(shared, Layout::k1), q1);
    products_commit();
    products_wait<1>();  // the other product goes on
    pin(scores2);
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys + Layout::key2_panel, lane);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(scores2, level_2_keys, q2 + Layout::q2_panel / 16, true);
    products_commit();
    barrier_wait(shared + Layout::empty_scores, i % 2 ^ 1);
    products_wait<0>();
    pin(scores1);
    pin(scores2);
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_coarse + ring.stage * 8);
    ring.advance();
    store_coarse_scores(shared + Layout::scores + 2 * warp * 1024 + lane * 16, scores1, scores2, c1, c2,
                        deep ? deep_scores : nullptr);
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_scores);
  };
  // Without the barrier the compiler would start the next product before it reads the sums, and would need registers for
  // both.
  const auto add_sums = [&](float* to, const auto& sums) {
    add_registers(to, 128, sums);
    __syncwarp();
  };
  const auto start_queries_1 = [&](float (&sums)[16], int panel) {
    release(sums);
    const std::uint64_t keys = operand<128>(shared, Layout::k1 + panel * Layout::key1_panel);
    const std::uint64_t gradients = operand<64>(shared, Layout::level1);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 32, true, true>::run(sums, keys + k * Layout::row, gradients + k * 64, k > 0);
    products_commit();
  };
  const auto start_queries_2 = [&](float (&sums)[8], int panel) {
    release(sums);
    const std::uint64_t keys =
        with_stride(operand<128>(shared, Layout::k2 + panel * Layout::key2_panel), 0);  // each eight rows twice
    const std::uint64_t gradients = operand<32>(shared, Layout::level2);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 16, true, true>::run(sums, keys + k * (Layout::row / 2), gradients + k * 32, k > 0);
    products_commit();
  };
  int now = -1;  // of the next step's turn, for one thread: see begin_turn
  // A step's additions were started a while ago, so that to wait for their end does not take long.
  const auto end_turn_of = [&](int i) {
    if (p.turns == nullptr) return;
    named_sync(2, 128);
    if (thread != 0) return;
    now = peek_step(p, work, i + 1, 1);
    end_turn(p, work, work.query_tile(i), 1);
  };
  const auto add_step = [&](int i) {
    const int tile = work.query_tile(i);
    barrier_wait(shared + Layout::full_gradients + i % 2 * 8, i / 2 % 2);
    float a[16], b[16], c[8];
    start_queries_1(a, 0);
    start_queries_2(c, 0);
    start_queries_1(b, 1);
    if (thread == 0) {
      store_bytes(backward_wide_slot(p, shared) + static_cast<std::int64_t>(i) * coarse_gradients_bytes,
                  shared + Layout::level1, coarse_gradients_bytes);
      commit_stores();
    }
    if constexpr (deep) store_deep_gradients<T>(deep_tile(i), shared + Layout::level2, warp, lane);
    float* const sums = backward_wide_query_sums<true, deep>(p, work, tile) + 64 * 64 + again(thread) * 4;
    constexpr int next_panel = query_sums_size(64, true, deep);
    if (p.turns != nullptr) {
      if (thread == 0) begin_turn(p, work, tile, 1, now);
      named_sync(2, 128);
    }
    products_wait<2>();
    pin(a);
    add_sums(sums, a);
    products_wait<1>();
    pin(c);
    add_sums(sums + 32 * 64, c);
    start_queries_2(c, 1);
    products_wait<1>();
    pin(b);
    add_sums(sums + next_panel, b);
    products_wait<0>();
    pin(c);
    add_sums(sums + next_panel + 32 * 64, c);
    // The copy has ended, too: who sees the arrival may load it.
    if (thread == 0) wait_stores();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_gradients);
  };

  make_scores(0);
  make_scores(1);
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    add_step(i);
    if (i + 2 < work.steps) make_scores(i + 2);
    end_turn_of(i);
  }
  if constexpr (deep) named_arrive(8, 384);
}

}  // namespace hkt::kernels::cuda::sm90
