// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, wide (64 < D <= 128): the warpgroup that has the coarse levels. It makes coarse scores up to two steps
// ahead and coarse query sums, whose rows are columns of the head, and leaves gradients of scores in the CTA's slot for the
// second pass. While sums of one kind are added, products for the next run.
#pragma once

#include "sm90/backward_deep.h"
#include "sm90/backward_wide_second_pass.h"

namespace hkt::kernels::cuda::sm90 {

template <class T, bool deep>
class BackwardWideCoarse {
 public:
  using Storage = BackwardWideStorage;

  __device__ __forceinline__ BackwardWideCoarse(const BackwardParameters& parameters, const BackwardWork& cta_work,
                                                Storage& shared)
      : p(parameters),
        work(cta_work),
        storage(shared),
        thread(threadIdx.x % warpgroup_threads),
        lane(thread % 32),
        warp(thread / 32),
        c1(log2_e * weight(p, work, 1)),
        c2(log2_e * weight(p, work, 2)) {}

  __device__ __forceinline__ void run() {
    if constexpr (deep) named_barrier_sync(BackwardBarrier::deep_scores, fine_and_coarse_threads);
    storage.full_keys.wait(0);
    make_scores(0);
    make_scores(1);  // the number of steps is even
#pragma unroll 1
    for (int i = 0; i < work.steps; ++i) {
      step(i);
      if (i + 2 < work.steps) make_scores(i + 2);
      release_step(i);
    }
    if constexpr (deep) named_barrier_arrive(BackwardBarrier::deep_gradients, fine_and_coarse_threads);
  }

 private:
  static constexpr int sixteen_rows = descriptor_offset(16 * Storage::row_bytes);

  // Operands are described again each time: there are no registers to keep them in.
  __device__ __forceinline__ Storage& again() { return rematerialize_storage(storage); }

  // The tile of step i in the slot.
  __device__ __forceinline__ float* deep_tile(int i) {
    return deep_slot(p, again().slot) + work.query_tile(i) * deep_tile_size;
  }

  // Coarse scores of step i.
  __device__ __forceinline__ void make_scores(int i) {
    const std::uint64_t q1 = matrix_descriptor<128>(shared_address(&again().coarse_queries[pipe.stage]));
    const std::uint64_t q2 = q1 + descriptor_offset(sizeof(Storage::CoarseQueryStage::q1));
    const std::uint32_t keys2 = again().k2[0].address() + warp * 8 * Storage::row_bytes;
    float level1[16], level2[8], deep_scores[2];
    std::uint32_t level_2_keys[8];  // of one panel
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
    load_level_2_keys<Storage::row_bytes, 64>(level_2_keys, keys2, lane);
    storage.full_coarse_queries[pipe.stage].wait(pipe.parity);
    mark_undefined(level1);
    mark_undefined(level2);
    fence_operand(level_2_keys);
    wgmma_fence();
    start_level_2<T>(level2, level_2_keys, q2, false);
    wgmma_commit();
    start_product<T, 128, sizeof(storage.k1[0]), sizeof(Storage::CoarseQueryStage::q1) / Storage::panels>(
        level1, matrix_descriptor<128>(again().k1[0].address()), q1);
    wgmma_commit();
    wgmma_wait<1>();  // the other product goes on
    fence_operand(level2);
    load_level_2_keys<Storage::row_bytes, 64>(level_2_keys, keys2 + sizeof(storage.k2[0]), lane);
    fence_operand(level_2_keys);
    wgmma_fence();
    start_level_2<T>(level2, level_2_keys,
                     q2 + descriptor_offset(sizeof(Storage::CoarseQueryStage::q2) / Storage::panels), true);
    wgmma_commit();
    storage.empty_scores.wait(i % 2 ^ 1);
    wgmma_wait<0>();
    fence_operand(level1);
    fence_operand(level2);
    storage.empty_coarse_queries[pipe.stage].arrive_warp();
    pipe.advance();
    store_coarse_scores(storage.coarse_scores.address(), level1, level2, c1, c2, deep ? deep_scores : nullptr, warp,
                        lane);
    __syncwarp();
    storage.full_scores.arrive_warp();
  }

  // Query sums of a panel: issued and not waited for.
  __device__ __forceinline__ void issue_sums1(float (&sums)[16], int panel) {
    mark_undefined(sums);
    const std::uint64_t keys = matrix_descriptor<128>(again().k1[panel].address());
    const std::uint64_t gradients = matrix_descriptor<64>(again().level1_gradients.address());
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<T, 32, true, true>::run(sums, keys + k * sixteen_rows, gradients + k * descriptor_offset(16 * 64), k > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_sums2(float (&sums)[8], int panel) {
    mark_undefined(sums);
    const std::uint64_t keys =
        with_stride(matrix_descriptor<128>(again().k2[panel].address()), 0);  // each eight rows twice
    const std::uint64_t gradients = matrix_descriptor<32>(again().level2_gradients.address());
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<T, 16, true, true>::run(sums, keys + k * (sixteen_rows / 2), gradients + k * descriptor_offset(16 * 32),
                                    k > 0);
    wgmma_commit();
  }
  // Without the barrier the compiler would issue the next product before it reads the sums, and would need registers for
  // both.
  template <int count>
  __device__ __forceinline__ void add(float* to, const float (&sums)[count]) {
    add_sums(to, warpgroup_threads, sums);
    __syncwarp();
  }

  // From the gradients of scores of step i.
  __device__ __forceinline__ void step(int i) {
    const int tile = work.query_tile(i);
    storage.full_gradients[i % 2].wait(i / 2 % 2);
    float first1[16], second1[16], sums2[8];
    issue_sums1(first1, 0);
    issue_sums2(sums2, 0);
    issue_sums1(second1, 1);
    if (thread == 0) {
      tma_store(coarse_gradients_slot(p, storage) + static_cast<std::int64_t>(i) * coarse_gradients_bytes,
                storage.level1_gradients.address(), coarse_gradients_bytes);
      tma_commit();
    }
    if constexpr (deep) store_deep_gradients<T>(deep_tile(i), storage.level2_gradients.address(), warp, lane);
    constexpr int next_panel = query_sums_size(64, true, deep);
    constexpr int to_level2 = (first_sum_row(2) - first_sum_row(1)) * 64;
    float* const sums = wide_query_sums<true, deep>(p, work, tile) + first_sum_row(1) * 64 + rematerialize(thread) * 4;
    if (p.semaphores != nullptr) {
      if (thread == 0) acquire_query_sums(p, work, tile, SumsOf::coarse, peeked);
      named_barrier_sync(BackwardBarrier::coarse_warpgroup, warpgroup_threads);
    }
    wgmma_wait<2>();
    fence_operand(first1);
    add(sums, first1);
    wgmma_wait<1>();
    fence_operand(sums2);
    add(sums + to_level2, sums2);
    issue_sums2(sums2, 1);
    wgmma_wait<1>();
    fence_operand(second1);
    add(sums + next_panel, second1);
    wgmma_wait<0>();
    fence_operand(sums2);
    add(sums + next_panel + to_level2, sums2);
    // The copy has ended, too: who sees the arrival may load it.
    if (thread == 0) tma_wait();
    __syncwarp();
    storage.empty_coarse_gradients.arrive_warp();
  }

  // The additions of step i were issued a while ago, so that to wait for their end does not take long.
  __device__ __forceinline__ void release_step(int i) {
    if (p.semaphores == nullptr) return;
    named_barrier_sync(BackwardBarrier::coarse_warpgroup, warpgroup_threads);
    if (thread != 0) return;
    peeked = peek_step(p, work, i + 1, SumsOf::coarse);
    release_query_sums(p, work, work.query_tile(i), SumsOf::coarse);
  }

  const BackwardParameters& p;
  const BackwardWork& work;
  Storage& storage;
  const int thread;  // of the warpgroup
  const int lane;
  const int warp;
  const float c1, c2;
  PipelineState<Storage::coarse_stages> pipe;  // of coarse queries
  int peeked = -1;                             // one thread: the next step's semaphore, see acquire_query_sums
};

}  // namespace hkt::kernels::cuda::sm90
