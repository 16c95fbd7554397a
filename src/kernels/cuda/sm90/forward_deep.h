// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, levels from 3 on. A tile of 128 x 128 scores has 16 x 16 of level 3. Those of all these levels,
// weighted, are summed at its resolution; the sums join the scores of level 2.
//
// Products that small would in a step only wait for memory, for each other and for the large ones. So before the first
// tile the consumers make the sums of all tiles, many at a time (forward_deep_sums.h), in a slot of global memory: 1 KB for
// each tile of keys, so 8 bytes for each row of a head. A step reads the sums that were asked for a step before.
#pragma once

#include "deep.h"
#include "forward_common.h"

namespace hkt::kernels::cuda::sm90 {

// Sums, as they lie in memory, in bytes: 16 rows of queries with 16 keys each. Where threads join scores, each needs the keys
// 2j + c % 2 for the level-1 blocks j: the even keys come first, so that four are neighbours. Where products sum them, each
// needs all keys.

inline constexpr int deep_row_bytes = 16 * 4;
static_assert(deep_tile_bytes == 16 * deep_row_bytes);

enum class DeepOrder : std::uint8_t { even_keys_first, natural };
__device__ __forceinline__ int deep_column(DeepOrder order, int key) {
  return order == DeepOrder::natural ? key : key % 2 * 8 + key / 2;
}

// A slot for each 128 queries that a block works on at a time: nobody else uses it.
__device__ __forceinline__ float* deep_slot(const ForwardParameters& p, int slot) {
  return p.deep_sums + static_cast<std::int64_t>(slot) * ((p.length + 127) / 128) * (deep_tile_bytes / 4);
}

// A warp's sums are those of eight queries. Where a thread's begin, if the warps' lie one after another.
inline constexpr int deep_warp_bytes = 8 * deep_row_bytes;
__device__ __forceinline__ int deep_place(DeepOrder order, int thread) {
  return thread / 32 * deep_warp_bytes + thread % 32 / 8 * deep_row_bytes +
         (order == DeepOrder::natural ? 0 : thread % 2 * 32);
}

// Of the thread's rows r and r + 8, for blocks j to j + 3.
struct DeepScores {
  float4 rows[2];
};
__device__ __forceinline__ float deep_of(const DeepScores& deep, int r, int j) {
  const float4& row = deep.rows[r];
  return j % 4 == 0 ? row.x : j % 4 == 1 ? row.y : j % 4 == 2 ? row.z : row.w;
}

// From the slot: blocks 0 to 3, 4 to 7.
__device__ __forceinline__ void read_deep(DeepScores (&sums)[2], const float* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float4& to = sums[i / 2].rows[i % 2];
    asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w)
                 : "l"(from + i / 2 * 4 + i % 2 * (4 * deep_row_bytes / 4))
                 : "memory");
  }
}

// Or by way of shared memory, where each warp of two consumers has room for its sums of one tile. Starts the copy of a tile
// of the slot, when all lanes have read what was there.
__device__ __forceinline__ void copy_deep(std::uint32_t to, const float* tile, int thread) {
  __syncwarp();
  copy_16(to + thread * 16, tile + thread % 64 * 4, true);
  commit_copies();
}
// The number of a consumers' thread, read anew each time, rather than kept in a register.
__device__ __forceinline__ int consumer_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread - 128;
}
__device__ __forceinline__ void wait_deep() {
  wait_copies<0>();
  __syncwarp();
}
__device__ __forceinline__ DeepScores load_deep(std::uint32_t from, int j) {
  return {{load_coarse(from + j * 4), load_coarse(from + 4 * deep_row_bytes + j * 4)}};
}

}  // namespace hkt::kernels::cuda::sm90
