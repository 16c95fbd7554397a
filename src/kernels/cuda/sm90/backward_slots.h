// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: slots, memory that a running block has for itself, for what a step leaves to be used after the last
// one: gradients of coarse scores (backward_128_late.h) and scores and gradients of levels from 3 on (backward_deep.h).
//
// There are as many slots as blocks can run at the same time. A block claims one when it starts and gives it back when it
// ends; it reads nothing there that it has not written itself. All slots are free when the kernel starts, because the
// marks of those that are taken are among what is cleared before each launch, whatever became of the launch before.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

// One thread: finds a slot that no running block has. There is one for each multiprocessor, or for each block if these
// are fewer, and no multiprocessor runs two blocks: each takes more than half of its shared memory. So one is free.
__device__ __forceinline__ int claim_slot(const BackwardParameters& p) {
  unsigned processor;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
  int slot = static_cast<int>(processor % static_cast<unsigned>(p.slots));
  while (atomicCAS(p.slots_taken + slot, 0, 1) != 0) slot = slot + 1 == p.slots ? 0 : slot + 1;
  __threadfence();
  return slot;
}
__device__ __forceinline__ void give_slot_back(const BackwardParameters& p, int slot) {
  __threadfence();
  atomicExch(p.slots_taken + slot, 0);
}
// `place`: where in shared memory its number is.
__device__ __forceinline__ int slot_number(std::uint32_t place) {
  int slot;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(slot) : "r"(place) : "memory");
  return slot;
}

}  // namespace hkt::kernels::cuda::sm90
