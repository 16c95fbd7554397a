// Backward on Hopper: sums in a fixed order. The blocks of a head add to a tile of queries by turns.
//
// The order is that in which they come: with a causal mask the last keys that see the tile are first, else the first
// keys. So every block waits for blocks that were started before it alone, and the first one never has to.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

__device__ __forceinline__ int turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  return p.causal ? tile / (backward_keys / backward_queries) - work.key_tile : work.key_tile;
}

__device__ __forceinline__ int* turn_of(const BackwardParameters& p, const BackwardWork& work, int tile, int which) {
  return p.turns + 2 * (static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile) + which;
}
// Between the copy engine's additions and the turns. Without `.global` it would also wait, as a fence of all memory for
// the whole GPU does.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ void wait_turn(const int* turn, int mine) {
  int now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != mine);
  fence_async_global();
}
// All additions are complete and known to the calling thread.
__device__ __forceinline__ void pass_turn(int* turn) {
  fence_async_global();
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

// Around what one thread adds to sums of a tile of queries.
__device__ __forceinline__ void begin_turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  if (p.turns != nullptr) wait_turn(turn_of(p, work, tile, 0), turn(p, work, tile));
}
__device__ __forceinline__ void end_turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  if (p.turns == nullptr) return;
  wait_stores();
  pass_turn(turn_of(p, work, tile, 0));
}

// Until at most `pending` groups of stores still have to be read from shared memory.
template <int pending>
__device__ __forceinline__ void wait_stores_read_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

}  // namespace hkt::kernels::cuda::sm90
