// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, what CTAs share in global memory: semaphores, which order their additions, and slots, which a
// resident CTA has for itself.
#pragma once

#include "common/semaphore.h"
#include "sm90/backward.h"

namespace hkt::kernels::cuda::sm90 {

// ---- semaphores: in deterministic runs, CTAs of a head add to the sums of a tile of queries one after the other ----

// The CTA's place in that order. With a causal mask the last keys that see the tile are first, else the first keys: that
// is the order in which their CTAs start and come by.
__device__ __forceinline__ int semaphore_order(const BackwardParameters& p, const BackwardWork& work, int tile) {
  return p.causal ? p.first_row / backward_keys + tile / query_tiles_per_key_tile - work.key_tile : work.key_tile;
}

// A tile's sums have two semaphores, since different warps add them. In the narrow kernels the first one is for all sums.
enum class SumsOf { fine, coarse };
static_assert(static_cast<int>(SumsOf::coarse) < semaphores_per_query_tile);

__device__ __forceinline__ int* query_semaphore(const BackwardParameters& p, const BackwardWork& work, int tile,
                                                SumsOf which) {
  return p.semaphores + semaphores_per_query_tile * (static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile) +
         static_cast<int>(which);
}
// The semaphore of a step that is to come, as it is; -1 if there is no such step.
__device__ __forceinline__ int peek_step(const BackwardParameters& p, const BackwardWork& work, int step,
                                         SumsOf which) {
  return step < work.steps ? semaphore_peek(query_semaphore(p, work, work.query_tile(step), which)) : -1;
}
// Around what is added to sums of a tile of queries. `peeked`: what peek_step saw, before fence_acq_rel, or -1.
__device__ __forceinline__ void acquire_query_sums(const BackwardParameters& p, const BackwardWork& work, int tile,
                                                   SumsOf which, int peeked) {
  const int order = semaphore_order(p, work, tile);
  if (peeked != order) semaphore_wait(query_semaphore(p, work, tile, which), order);
  fence_async_global();
}
// TMA's additions are complete, and a barrier came after those of other threads.
__device__ __forceinline__ void release_query_sums(const BackwardParameters& p, const BackwardWork& work, int tile,
                                                   SumsOf which) {
  fence_async_global();
  fence_acq_rel();
  semaphore_release(query_semaphore(p, work, tile, which));
}

// ---- slots ----
// Memory for what a step leaves to be used after the last one: gradients of coarse scores (backward_wide_second_pass.h),
// scores and gradients of deep levels (backward_deep.h).
//
// There are as many slots as resident CTAs. A CTA acquires one when it starts and releases it when it ends; it reads
// nothing there that it has not written itself. All slots are free when the kernel starts, because slots_taken is cleared
// before each launch, whatever became of the launch before.

// One thread: finds a slot that no resident CTA has. There is one for each SM, or for each CTA if these are fewer, and no
// SM has two CTAs: each takes more than half of its shared memory. So one is free.
__device__ __forceinline__ int acquire_slot(const BackwardParameters& p) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  int slot = static_cast<int>(sm % static_cast<unsigned>(p.slots));
  while (atomicCAS(p.slots_taken + slot, 0, 1) != 0) slot = slot + 1 == p.slots ? 0 : slot + 1;
  __threadfence();
  return slot;
}
__device__ __forceinline__ void release_slot(const BackwardParameters& p, int slot) {
  __threadfence();
  atomicExch(p.slots_taken + slot, 0);
}
// One CTA on an SM, as slots need. 227 KB is what a CTA can have, 228 KB what an SM has; a CTA takes 1 KB more than it
// asks for.
template <class Storage>
inline constexpr bool one_cta_per_sm =
    shared_storage_bytes<Storage> <= 227 * 1024 && 2 * shared_storage_bytes<Storage> > 227 * 1024;

}  // namespace hkt::kernels::cuda::sm90
