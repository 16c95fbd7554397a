// SPDX-License-Identifier: Apache-2.0
// Semaphores in global memory that fix the order in which CTAs add to the same sums, as FlashAttention's deterministic
// backward has them. A semaphore counts the CTAs that have added; the CTA whose place in the order it shows is next. A CTA
// waits only for CTAs before it in the grid, which are assumed to start before it.
//
// Loads and increments are relaxed; fence_acq_rel orders them. One fence serves both sides: after a peek it acquires what
// others have added, before a release it publishes what this CTA has added.
#pragma once

namespace hkt::kernels::cuda {

// The count now (relaxed). It acquires nothing before the next fence_acq_rel.
__device__ __forceinline__ int semaphore_peek(const int* semaphore) {
  int count;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(semaphore) : "memory");
  return count;
}
// Covers what other threads of the CTA have added, too, if a barrier came after that. Takes a round trip to memory.
__device__ __forceinline__ void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Lets the next CTA add (relaxed). A release only together with the fence_acq_rel before it.
__device__ __forceinline__ void semaphore_release(int* semaphore) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(semaphore) : "memory");
}
// Spins until `order` CTAs have added, and acquires what they added.
__device__ __forceinline__ void semaphore_wait(const int* semaphore, int order) {
  while (semaphore_peek(semaphore) != order) {
  }
  fence_acq_rel();
}

}  // namespace hkt::kernels::cuda
