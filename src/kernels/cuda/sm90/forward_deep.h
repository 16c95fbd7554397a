// Forward on Hopper, levels from 3 on. A tile of 128 x 128 scores has 16 x 16 of level 3. Those of all these levels,
// weighted, are summed at its resolution; the sums join the scores of level 2.
#pragma once

#include "deep.h"
#include "forward_common.h"

namespace hkt::kernels::cuda::sm90 {

// Sums, as they lie in shared memory.
// [query][key % 2][key / 2]: a thread needs the keys 2j + c % 2 for the level-1 blocks j, so that four are neighbours.

inline constexpr int deep_row = 16 * 4;
inline constexpr int deep_tile = 16 * deep_row;

// Where the thread's sums begin, from the sums of its warp's eight queries on.
__device__ __forceinline__ int deep_place() { return threadIdx.x % 32 / 8 * deep_row + threadIdx.x % 2 * 32; }

// Of the thread's rows r and r + 8, for blocks j to j + 3.
struct DeepScores {
  float4 rows[2];
};
__device__ __forceinline__ DeepScores load_deep(std::uint32_t from, int j) {
  return {{load_coarse(from + j * 4), load_coarse(from + 4 * deep_row + j * 4)}};
}
__device__ __forceinline__ float deep_of(const DeepScores& deep, int r, int j) {
  const float4& row = deep.rows[r];
  return j % 4 == 0 ? row.x : j % 4 == 1 ? row.y : j % 4 == 2 ? row.z : row.w;
}

__device__ __forceinline__ void store_float(std::uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

}  // namespace hkt::kernels::cuda::sm90
