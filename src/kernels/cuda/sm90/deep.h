// Levels from 3 on, on Hopper: what the forward and the backward share.
//
// Blocks of 8 x 8 scores share one score of level 3, so 128 x 128 scores have 16 x 16 of level 3, and of levels 4 to 7
// those of 8, 4, 2 and 1 rows. That is small work, for which the products of a warp suffice. The rows of levels 4 to 7
// are 15 together: all their products are taken as one of 16 x 16, of which the blocks on the diagonal count. So the
// work does not grow with the levels.
#pragma once

#include "../sm80/tensor_core.h"
#include "hkt/kernels.h"

namespace hkt::kernels::cuda::sm90 {

static_assert(max_levels <= 8, "128 rows have 15 of levels 4 to 7, and none of their own of coarser ones");

// A tile that has `count` rows of level 3 has half as many of level 4 after them, and so on. Where a level begins; that
// of the level after the last is the number of rows.
__host__ __device__ constexpr int first_deep_row(int count, int level) {
  return 2 * count - (2 * count >> (level - 3));
}
// The level of a row, of a tile with 16 of level 3: the first of five digits that is 0 tells.
__device__ __forceinline__ int deep_level(int row) { return 3 + __clz(~(row << 27)); }

// ---- what levels from 4 on add to the sums of level 3 ----
// Weighted scores change hands in shared memory: 8 x 8 of level 4, then 8 x 8 of the others, of which the blocks on the
// diagonal count: 4 x 4, 2 x 2, 1.

inline constexpr int coarser_deep_bytes = 2 * 8 * 8 * 4;

// Row r, columns 2c and the next of either (r = lane / 4, c = lane % 4).
__device__ __forceinline__ void store_coarser_deep(std::uint32_t to, int which, float x, float y, int lane) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to + which * 256 + lane / 4 * 32 + lane % 4 * 8), "f"(x), "f"(y)
               : "memory");
}
// What they add to row r + 8h, columns 8n + 2c and the next of level 3.
__device__ __forceinline__ float coarser_deep_sum(std::uint32_t from, int h, int n, int lane) {
  const int r = lane / 4, c = lane % 4;
  const auto load = [&](int place) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from + place * 4) : "memory");
    return x;
  };
  return load((4 * h + r / 2) * 8 + 4 * n + c) + load(64 + (2 * h + r / 4) * 8 + 2 * n + c / 2) +
         load(64 + (4 + h) * 8 + 4 + n) + load(64 + 6 * 8 + 6);
}

}  // namespace hkt::kernels::cuda::sm90
