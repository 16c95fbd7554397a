// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: the turns of the blocks of a head at a tile of queries. With a causal mask the last keys that see the
// tile are first, else the first keys: that is the order in which their blocks start and come by.
#pragma once

#include "../turns.h"
#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

__device__ __forceinline__ int turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  return p.causal ? tile / (backward_keys / backward_queries) - work.key_tile : work.key_tile;
}

__device__ __forceinline__ int* turn_of(const BackwardParameters& p, const BackwardWork& work, int tile, int which) {
  return p.turns + 2 * (static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile) + which;
}
// The counter of a step that is to come, as it is; -1 if there is no such step.
__device__ __forceinline__ int peek_step(const BackwardParameters& p, const BackwardWork& work, int step, int which) {
  return step < work.steps ? peek_turn(turn_of(p, work, work.query_tile(step), which)) : -1;
}
// Around what is added to sums of a tile of queries. `now`: its counter, as it was before order_turns, or -1.
__device__ __forceinline__ void begin_turn(const BackwardParameters& p, const BackwardWork& work, int tile, int which,
                                           int now) {
  const int mine = turn(p, work, tile);
  if (now != mine) wait_turn(turn_of(p, work, tile, which), mine);
  fence_async_global();
}
// The copy engine's additions are complete, and a barrier came after those of other threads.
__device__ __forceinline__ void end_turn(const BackwardParameters& p, const BackwardWork& work, int tile, int which) {
  fence_async_global();
  order_turns();
  pass_turn(turn_of(p, work, tile, which));
}

}  // namespace hkt::kernels::cuda::sm90
