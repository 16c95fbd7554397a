// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, wide (64 < D <= 128): the second pass, which makes the gradients of the keys of levels 1 and 2 after a
// CTA's last step.
//
// There are no registers for their sums in the steps. A step only leaves its gradients of scores of pairs of keys and pairs
// of queries, 4 KB as they lie in shared memory, in the CTA's slot (backward_semaphores.h). After the last step they come
// back, with the coarse queries, through stages that take the place of all tiles.
//
// The gradients of level 1 serve for level 2, too: tile row 16b + y of level 1 holds query 2y + b, which belongs to query y
// of level 2. So the product of both halves b with the same 16 queries of level 2 sums over pairs of queries, and rows r and
// r + 8 of its accumulator, the thread's own, belong to the same key of level 2.
#pragma once

#include "sm90/backward_load.h"
#include "sm90/backward_wide_storage.h"

namespace hkt::kernels::cuda::sm90 {

// One thread: finds a slot for the CTA.
__device__ __forceinline__ void acquire_slot(const BackwardParameters& p, BackwardWideStorage& storage) {
  storage.slot.store(acquire_slot(p));
  fence_async_global();  // the CTA that had the slot before has read what was there
  storage.has_slot.arrive();
}

// Where the CTA leaves gradients of scores, step by step.
__device__ __forceinline__ std::uint8_t* coarse_gradients_slot(const BackwardParameters& p,
                                                               BackwardWideStorage& storage) {
  storage.has_slot.wait(0);
  const std::int64_t slot = storage.slot.load();
  return p.coarse_gradients + slot * p.query_tiles * coarse_gradients_bytes;
}

// One of three threads: coarse queries and the gradients of scores of every third step. One alone would issue loads more
// slowly than products are made.
__device__ __forceinline__ void load_second_pass(const BackwardParameters& p, const BackwardWork& work,
                                                 BackwardWideStorage& storage, int part) {
  using Storage = BackwardWideStorage;
  const std::uint8_t* const slot = coarse_gradients_slot(p, storage);
  storage.empty_keys.wait(0);  // nobody needs `fine_gradients` any more, either
  fence_async_global();
  // Until then the fine warpgroups have waited for the coarse one's arrivals for all steps but the last one, so that the
  // gradients of scores of these are in the slot. That step's, and the additions to query sums, are waited for when they are
  // needed. The number of steps is even: see backward_work.
  const int first_part = min(Storage::early_stages, work.steps - 1);
  bool all_there = false;
#pragma unroll 1
  for (int i = part; i < work.steps; i += Storage::second_pass_loaders) {
    if (i >= first_part && !all_there) {
      storage.empty_coarse_gradients.wait(1);
      for (int k = 0; k < Storage::stages; ++k) storage.empty_grad_out[k].wait(work.steps / 2 % 2 ^ 1);
      fence_async_global();
      all_there = true;
    }
    const int which = i % Storage::second_pass_stages;
    Barrier& full = storage.full_second_pass[which];
    auto& stage = storage.second_pass_stage(which);
    storage.empty_second_pass[which].wait(i / Storage::second_pass_stages % 2 ^ 1);
    full.arrive_expect(sizeof(stage));
    load_coarse_queries<Storage>(shared_address(&stage.queries.q1), shared_address(&stage.queries.q2), p, full, work,
                                 work.query_tile(i));
    tma_load(stage.level1_gradients.address(), slot + static_cast<std::int64_t>(i) * coarse_gradients_bytes,
             coarse_gradients_bytes, full.address());
  }
}

// A warpgroup: sums over all queries for the gradients of the keys of level 1 or 2.
template <class T, int level>
__device__ __forceinline__ void sum_second_pass(float (&sums)[64], const BackwardWork& work,
                                                BackwardWideStorage& storage) {
  using Storage = BackwardWideStorage;
  using Stage = typename Storage::SecondPassStage;
  constexpr int query_offset = level == 1 ? 0 : sizeof(Storage::CoarseQueryStage::q1);
  constexpr int panel_bytes =
      (level == 1 ? sizeof(Storage::CoarseQueryStage::q1) : sizeof(Storage::CoarseQueryStage::q2)) / Storage::panels;
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  fence_operand(sums);
  PipelineState<Storage::second_pass_stages> pipe;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const std::uint32_t stage = shared_address(&storage) + pipe.stage * sizeof(Stage);
    const std::uint64_t gradients = matrix_descriptor<64>(stage + sizeof(Stage::queries));
    const std::uint64_t queries = matrix_descriptor<128>(stage + query_offset, panel_bytes);
    storage.full_second_pass[pipe.stage].wait(pipe.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2; ++k)
      Wgmma<T, 128, false, true>::run(sums, gradients + 2 * k,
                                      queries + (level == 1 ? k * descriptor_offset(16 * Storage::row_bytes) : 0), 1);
    wgmma_commit();
    wgmma_wait<1>();  // the step before has been done with
    if (i > 0)
      storage.empty_second_pass[pipe.stage == 0 ? Storage::second_pass_stages - 1 : pipe.stage - 1].arrive_warp();
    pipe.advance();
  }
  wgmma_wait<0>();
  fence_operand(sums);
}

// A warpgroup: the gradients of the keys of level 1 or 2.
template <class T, int level>
__device__ __forceinline__ void second_pass(const BackwardParameters& p, const BackwardWork& work,
                                            BackwardWideStorage& storage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % warpgroup_threads / 32;
  const int r = lane / 4, c = lane % 4;
  float sums[64];
  sum_second_pass<T, level>(sums, work, storage);
  const float factor = weight(p, work, level);
  const int rows = level < p.levels ? level_rows(p.length, level) : 0;
  if constexpr (level == 1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys / 2) + 16 * warp + 2 * r + h;
      write_row_x4(row_of<T>(p.grad_k[1], work, row), sums, h, c, row < rows ? p.width : 0, factor);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) sums[i + e] += sums[i + 2 + e];
    }
    const int row = work.key_tile * (backward_keys / 4) + 8 * warp + r;
    write_row_x4(row_of<T>(p.grad_k[2], work, row), sums, 0, c, row < rows ? p.width : 0, factor);
  }
}

}  // namespace hkt::kernels::cuda::sm90
