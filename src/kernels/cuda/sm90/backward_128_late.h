// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths above 64: gradients of the keys of levels 1 and 2, after a block's last step.
//
// There is no room for their sums in the steps. A step only leaves its gradients of scores of pairs of keys and pairs of
// queries, 4 KB as they lie in shared memory, in the block's slot: see backward_slots.h. After the last step they
// come back, with the coarse queries, through stages that take the place of all tiles.
//
// The gradients of level 1 serve for level 2, too: place 16b + y of level 1 holds query 2y + b, which belongs to query y
// of level 2. So the product of both halves b with the same 16 queries of level 2 sums over pairs of queries, and rows r
// and r + 8 of its accumulator, the thread's own, belong to the same key of level 2.
#pragma once

#include "backward_128_layout.h"
#include "backward_loads.h"
#include "backward_results.h"
#include "backward_slots.h"

namespace hkt::kernels::cuda::sm90 {

// One thread: finds a slot for the block.
__device__ __forceinline__ void backward_wide_claim(const BackwardParameters& p, std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  sm80::store_4(shared + Layout::slot, claim_slot(p));
  fence_async_global();  // the block that had the slot before has read what was there
  barrier_arrive(shared + Layout::claimed);
}

// Where the block leaves gradients of scores, step by step.
__device__ __forceinline__ std::uint8_t* backward_wide_slot(const BackwardParameters& p, std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  barrier_wait(shared + Layout::claimed, 0);
  const std::int64_t slot = slot_number(shared + Layout::slot);
  return p.coarse_gradients + slot * p.query_tiles * coarse_gradients_bytes;
}

// One of three threads: coarse queries and the gradients of scores of every third step. One alone would start copies
// more slowly than products are made.
__device__ __forceinline__ void backward_wide_load_late(const BackwardParameters& p, const BackwardWork& work,
                                                        std::uint32_t shared, int part) {
  using Layout = BackwardWideLayout;
  const std::uint8_t* const slot = backward_wide_slot(p, shared);
  barrier_wait(shared + Layout::read_keys, 0);  // nobody needs keys and values of level 0 any more, nor `fine`
  fence_async_global();
  // Until then the two warpgroups have waited for the coarse one's arrivals for all steps but the last one, so that the
  // gradients of scores of these are in the slot. That step's, and the additions to sums for queries, are waited for when
  // they are needed.
  const int first_part = min(Layout::first_late_stages, work.steps - 1);
  bool all_there = false;
#pragma unroll 1
  for (int i = part; i < work.steps; i += Layout::late_loaders) {
    if (i >= first_part && !all_there) {
      barrier_wait(shared + Layout::empty_gradients, 1);  // the number of steps is even
      for (int k = 0; k < 2; ++k) barrier_wait(shared + Layout::empty_grad_out + k * 8, work.steps / 2 % 2 ^ 1);
      fence_async_global();
      all_there = true;
    }
    const int which = i % Layout::late_stages;
    const std::uint32_t full = shared + Layout::full_late + which * 8;
    const std::uint32_t stage = shared + which * Layout::late_stage;
    barrier_wait(shared + Layout::empty_late + which * 8, i / Layout::late_stages % 2 ^ 1);
    barrier_expect(full, Layout::late_stage);
    load_coarse_queries<Layout::row, 2>(stage, stage + Layout::q2, p, full, work, work.query_tile(i));
    load_bytes(stage + Layout::coarse_stage, slot + static_cast<std::int64_t>(i) * coarse_gradients_bytes,
               coarse_gradients_bytes, full);
  }
}

// A warpgroup: the gradients of the keys of level 1 or 2.
template <class T, int level>
__device__ __forceinline__ void backward_wide_late(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  constexpr int queries = level == 1 ? 0 : Layout::q2;  // in a stage
  constexpr int query_panel = level == 1 ? Layout::q1_panel : Layout::q2_panel;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  pin(sums);
  const auto give_back = [&](int stage) {
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_late + stage * 8);
  };
  Ring<Layout::late_stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const std::uint32_t stage = shared + ring.stage * Layout::late_stage;
    const std::uint64_t a = descriptor<64>(stage + Layout::coarse_stage);
    const std::uint64_t b = descriptor<128>(stage + queries, query_panel);
    barrier_wait(shared + Layout::full_late + ring.stage * 8, ring.parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; ++k)
      Product<T, 128, false, true>::run(sums, a + 2 * k, b + (level == 1 ? k * Layout::row : 0), 1);
    products_commit();
    products_wait<1>();  // the step before has been done with
    if (i > 0) give_back(ring.stage == 0 ? Layout::late_stages - 1 : ring.stage - 1);
    ring.advance();
  }
  products_wait<0>();
  pin(sums);

  const int r = lane / 4, c = lane % 4;
  const float factor = weight(p, work, level);
  const int rows = level < p.levels ? level_rows(p, level) : 0;
  if constexpr (level == 1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys / 2) + 16 * warp + 2 * r + h;
      write_chunks(row_of<T>(p.grad_k[1], work, row), sums, h, c, row < rows ? p.width : 0, factor);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) sums[i + e] += sums[i + 2 + e];
    }
    const int row = work.key_tile * (backward_keys / 4) + 8 * warp + r;
    write_chunks(row_of<T>(p.grad_k[2], work, row), sums, 0, c, row < rows ? p.width : 0, factor);
  }
}

}  // namespace hkt::kernels::cuda::sm90
