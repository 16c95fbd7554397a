// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, levels from 3 on: scores, made before a block's first step and read in each. See backward_deep.h.
#pragma once

#include "backward_deep.h"

namespace hkt::kernels::cuda::sm90 {

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

// ---- scores ----

// Before the first step, eight warps: each takes a unit at a time, and has its part of the shared memory at `exchange`. A
// thread reads 16 bytes of a row at once, the columns 8c to 8c + 7 of 32; products take them for columns 2c, 2c + 1,
// 2c + 8, 2c + 9 of 16, twice. That is another order of the columns, the same for both operands.
template <class T, int width>
__device__ __forceinline__ void make_deep_scores(const BackwardParameters& p, const BackwardWork& work, float* slot,
                                                 std::uint32_t exchange, int warp, int lane) {
  constexpr int parts = width / 32;
  exchange += warp * coarser_deep_bytes;
  const int r = lane / 4, c = lane % 4;
  const bool has_coarser = p.levels > 4;
  uint4 keys[2][2][parts];
  DeepRow rows[2][2];  // of queries
#pragma unroll
  for (int block = 0; block < 2; ++block) {  // level 3, coarser ones
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int place = 16 * block + 8 * h + r;
      const DeepRow row = deep_row(p.deep_k, p, work, place);
#pragma unroll
      for (int i = 0; i < parts; ++i) keys[block][h][i] = read_deep<uint4>(row, work.key_tile, 32 * i + 8 * c, p.width);
      rows[block][h] = deep_row(p.deep_q, p, work, place);
    }
  }
  const float c3 = log2_e * weight(p, work, 3), c4 = log2_e * weight(p, work, 4);
  const float c5 = log2_e * weight(p, work, deep_level(24 + r));  // or of a coarser one
  const DeepUnits units = deep_units(p, work);
#pragma unroll 1
  for (int i = warp; i < units.count; i += 8) {
    const int unit = units.first + i;
    uint4 queries[2][2][parts];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int k = 0; k < parts; ++k)
          queries[block][n][k] = read_deep<uint4>(rows[block][n], unit, 32 * k + 8 * c, p.width);
      }
    }
    float products[2][2][4];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int k = 0; k < parts; ++k) {
        const uint4 &a = keys[block][0][k], &b = keys[block][1][k];
        const std::uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint4& q = queries[block][n][k];
          sm80::multiply<T>(products[block][n], first, q.x, q.y, k == 0);
          sm80::multiply<T>(products[block][n], second, q.z, q.w);
        }
      }
    }
    float coarser[2][2] = {};  // of keys r and r + 8, queries 8n + 2c and the next
    if (has_coarser) {
      store_coarser_deep(exchange, 0, c4 * products[1][0][0], c4 * products[1][0][1], lane);
      store_coarser_deep(exchange, 1, c5 * products[1][1][2], c5 * products[1][1][3], lane);
      __syncwarp();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int n = 0; n < 2; ++n) coarser[h][n] = coarser_deep_sum(exchange, h, n, lane);
      }
      __syncwarp();
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float* const to = slot + static_cast<std::int64_t>(2 * unit + n) * deep_tile_size;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[deep_place(r + e / 2 * 8, 2 * c + e % 2)] = fmaf(c3, products[0][n][e], coarser[e / 2][n]);
    }
  }
}

// In a step, for the coarse warpgroup: what these levels add to a thread's scores of level 2. Its key is 8 · warp + r of
// them, its queries 8v + 2c and the next; of level 3 that is key 4 · warp + r / 2 and query 4v + c.
__device__ __forceinline__ void read_deep_scores(float (&scores)[2], const float* tile, int warp, int lane) {
  const float* const from = tile + deep_place(4 * warp + lane / 8, lane % 4);
  asm volatile("ld.global.v2.f32 {%0,%1}, [%2];" : "=f"(scores[0]), "=f"(scores[1]) : "l"(from) : "memory");
}

}  // namespace hkt::kernels::cuda::sm90
