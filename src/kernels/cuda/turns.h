// SPDX-License-Identifier: Apache-2.0
// Sums in a fixed order: blocks that add to the same place do so by turns. A counter says how many have done so, and with
// that, whose turn it is. A block waits only for blocks before it in the grid, which are assumed to start before it.
#pragma once

namespace hkt::kernels::cuda {

// The counter as it is; it counts as seen only after order_turns.
__device__ __forceinline__ int peek_turn(const int* turn) {
  int now;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  return now;
}
// After what others added before the counters that were peeked at, and before turns that are passed. What other threads of
// the block have added is among it if there was a barrier since. It takes a trip to memory.
__device__ __forceinline__ void order_turns() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ void pass_turn(int* turn) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}
__device__ __forceinline__ void wait_turn(const int* turn, int mine) {
  while (peek_turn(turn) != mine) {
  }
  order_turns();
}

}  // namespace hkt::kernels::cuda
