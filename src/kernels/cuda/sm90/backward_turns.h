// Backward on Hopper: sums in a fixed order. The blocks of a head add to a tile of queries by turns.
//
// The order is that in which they come: with a causal mask the last keys that see the tile are first, else the first
// keys. So every block waits only for blocks before it in the grid, which are assumed to start before it.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

__device__ __forceinline__ int turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  return p.causal ? tile / (backward_keys / backward_queries) - work.key_tile : work.key_tile;
}

__device__ __forceinline__ int* turn_of(const BackwardParameters& p, const BackwardWork& work, int tile, int which) {
  return p.turns + 2 * (static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile) + which;
}
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

}  // namespace hkt::kernels::cuda::sm90
