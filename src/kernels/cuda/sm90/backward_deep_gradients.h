// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, levels from 3 on: gradients, of scores in each step, and of keys and queries after a block's last
// step. See backward_deep.h.
#pragma once

#include "backward_deep.h"
#include "backward_products.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

// ---- in a step, for the coarse warpgroup ----

// Gradients of level 3, from those of pairs of keys and quads of queries, which lie as GradientPlaces::level2 says. A
// thread has a key of level 3, and a warp two queries.
template <class T>
__device__ __forceinline__ void store_deep_gradients(float* tile, std::uint32_t level2, int warp, int lane) {
  const int key = lane / 2, query = 2 * warp + lane % 2;
  const std::uint32_t from =
      level2 + (key / 4 * 16 + key % 4 * 2) * 32 + (query / 4 ^ key % 4 / 2) * 16 + query % 4 * 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // pairs of keys of two warps
    std::uint32_t pair;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair) : "r"(from + i / 2 * (8 * 32) + i % 2 * 32) : "memory");
    const float2 values = unpack<T>(pair);
    sum += values.x + values.y;
  }
  asm volatile("st.global.f32 [%0], %1;" ::"l"(tile + deep_place(key, query)), "f"(sum) : "memory");
  __syncwarp();  // all lanes have read the buffer before the warp gives it back
}

// ---- after the last step: gradients ----

// Of a unit, in shared memory: 16 x 16 gradients of level 3, rows are keys; then the 16 x 16 of coarser ones, which are
// zero but for the blocks on the diagonal.
inline constexpr int deep_unit_bytes = 2 * 16 * 32;

// A warp makes them. A thread has keys 2a and 2a + 1 and queries 4b to 4b + 3 of level 3 (a = lane / 4, b = lane % 4).
__device__ __forceinline__ void read_deep_gradients(float (&x)[2][4], const float* slot, const BackwardWork& work,
                                                    int unit, int lane) {
  const int a = lane / 4, b = lane % 4;
  const int tile = 2 * unit + b / 2;
  const bool inside = tile < work.first + work.steps;
  const float* const from = slot + static_cast<std::int64_t>(tile) * deep_tile_size + deep_place(2 * a, b % 2 * 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i / 4][i % 4] = 0;
    if (inside)
      asm volatile("ld.global.f32 %0, [%1];" : "=f"(x[i / 4][i % 4]) : "l"(from + i / 4 * 8 + i % 4 * 2) : "memory");
  }
}
template <class T>
__device__ __forceinline__ void sum_deep_gradients(std::uint32_t to, const float (&x)[2][4], int levels, int lane) {
  const int a = lane / 4, b = lane % 4;
#pragma unroll
  for (int k = 0; k < 2; ++k)
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to + (2 * a + k) * 32 + b * 8), "r"(pack<T>(x[k][0], x[k][1])),
                 "r"(pack<T>(x[k][2], x[k][3]))
                 : "memory");
  if (levels <= 4) return;
  to += 16 * 32;
  store_4(to + lane * 16, 0, 0, 0, 0);
  __syncwarp();
  const float two[2] = {x[0][0] + x[0][1] + x[1][0] + x[1][1], x[0][2] + x[0][3] + x[1][2] + x[1][3]};
  sm80::store_4(to + a * 32 + b * 4, pack<T>(two[0], two[1]));
  float sum = two[0] + two[1];
  sum += __shfl_xor_sync(~0u, sum, 4);
  if (a % 2 == 0) sm80::store_2(to + (8 + a / 2) * 32 + (8 + b) * 2, pack<T>(sum, 0));
  sum += __shfl_xor_sync(~0u, sum, 8);
  sum += __shfl_xor_sync(~0u, sum, 1);
  if (a % 4 == 0 && b % 2 == 0) sm80::store_2(to + (12 + a / 4) * 32 + (12 + b / 2) * 2, pack<T>(sum, 0));
  sum += __shfl_xor_sync(~0u, sum, 16);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (lane == 0) sm80::store_2(to + 14 * 32 + 14 * 2, pack<T>(sum, 0));
}

// A right operand for products over 16 rows and a warp's 32 columns, in four blocks of eight columns: of each row the
// thread has four neighbouring columns, one for each block. Its rows are 2c, 2c + 1, 2c + 8 and 2c + 9 (c = lane % 4): of
// levels coarser than 3 these are 8 of level 4, 4 of level 5, 2 of level 6, 1 of level 7, and none.
struct DeepOperand {
  DeepRow rows[2];  // the first of each two
  __device__ __forceinline__ DeepOperand(const Array (&arrays)[max_levels - 3], const BackwardParameters& p,
                                         const BackwardWork& work, bool coarser, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) rows[i] = deep_row(arrays, p, work, (coarser ? 16 : 0) + 8 * i + lane % 4 * 2);
  }
  __device__ __forceinline__ void read(uint2 (&values)[4], int unit, int column, int width) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = read_deep<uint2>(rows[i / 2], unit, column, width, i % 2);
  }
};
template <class T>
__device__ __forceinline__ void multiply_deep(float (&sums)[4][4], const std::uint32_t (&a)[4], const uint2 (&b)[4],
                                              bool is_first = false) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned which = j % 2 == 0 ? 0x5410 : 0x7632;  // lower or upper halves
    const auto both = [&](int i) {
      return j < 2 ? __byte_perm(b[i].x, b[i + 1].x, which) : __byte_perm(b[i].y, b[i + 1].y, which);
    };
    sm80::multiply<T>(sums[j], a, both(0), both(2), is_first);
  }
}

inline constexpr int deep_turns_together = 8;

// The two warpgroups with keys of level 0, the first one for level 3 and the other one for the coarser levels: gradients of
// the block's keys, and sums for those of queries. A warp has 32 columns. `memory`: shared memory that nothing else uses
// any more, for `chunk` units. Each block passes through here once, and much of the time goes to fetching the code: both
// warpgroups and both products share it.
template <class T, int width, int chunk>
__device__ __forceinline__ void add_deep_gradients(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t slot_place, std::uint32_t memory) {
  constexpr int columns = width < 64 ? width : 64, panels = width / columns;
  constexpr int size = query_sums_size(columns, true, true);
  const float* const slot = deep_slot(p, slot_place);
  const int half = __shfl_sync(~0u, again(threadIdx.x) / 128 - 1, 0);
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const DeepUnits units = deep_units(p, work);
  const bool takes_part = 32 * warp < width && (half == 0 || p.levels > 4);
  const bool ordered = p.turns != nullptr;

  // Column n of an operand's blocks: 16 · (n % 2) + 4 · (n / 2) on of the warp's. So a thread has, of a row of results, four
  // columns and the same 16 further, and what four lanes add fills 64 bytes: memory adds 32 at once, and half of that
  // would take it as long.
  const int operand_column = 32 * warp + lane / 4 % 2 * 16 + lane / 8 * 4, column = 32 * warp + lane % 4 * 4;
  const DeepOperand queries(p.deep_q, p, work, half == 1, lane);
  uint2 keys[4];
  DeepOperand(p.deep_k, p, work, half == 1, lane).read(keys, work.key_tile, operand_column, p.width);
  float key_sums[4][4] = {};

  // Where results of rows r and r + 8 belong.
  int levels[2], rows[2], offsets[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int place = 16 * half + 8 * h + lane / 4;
    levels[h] = deep_level(place);
    rows[h] = place - first_deep_row(16, levels[h]);
    const int in_tile = levels[h] >= 7 ? 1 : backward_queries >> levels[h];  // the even tile has the row of level 7
    offsets[h] = rows[h] / in_tile * (panels * size) + (first_deep_row(8, levels[h]) + rows[h] % in_tile) * columns;
  }
  float* const query_sums =
      p.query_sums + (static_cast<std::int64_t>(work.sequence) * p.query_tiles * panels + column / columns) * size +
      112 * columns + column % columns;

  const auto add_units = [&](int first, int begin, int end) {
    constexpr int ahead = 4;
#pragma unroll 1
    for (int i = begin; i < end; i += ahead) {
      uint2 values[ahead][4];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        queries.read(values[k], units[first + min(i + k, end - 1)], operand_column, p.width);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        if (i + k >= end) break;
        const std::uint32_t gradients = memory + (i + k) * deep_unit_bytes + half * (16 * 32);
        std::uint32_t a[4];
        sm80::load_matrices(a, gradients + lane % 16 * 32 + lane / 16 * 16);
        multiply_deep<T>(key_sums, a, values[k]);
        sm80::load_transposed(a, gradients + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16);
        float sums[4][4];
        multiply_deep<T>(sums, a, keys, true);
        float* const to = query_sums + static_cast<std::int64_t>(2 * units[first + i + k]) * (panels * size);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (levels[h] >= p.levels) continue;
#pragma unroll
          for (int e = 0; e < 2; ++e)
            add_4(to + offsets[h] + 16 * e, sums[0][2 * h + e], sums[1][2 * h + e], sums[2][2 * h + e],
                  sums[3][2 * h + e]);
        }
      }
    }
  };

#pragma unroll 1
  for (int first = 0; first < units.count; first += chunk) {
    const int count = min(chunk, units.count - first);
    if (first > 0) named_sync(6, 256);  // all have done with those before
#pragma unroll 1
    for (int i = 4 * half + warp; i < count; i += 16) {
      float x[2][2][4];
#pragma unroll
      for (int k = 0; k < 2; ++k) read_deep_gradients(x[k], slot, work, units[first + min(i + 8 * k, count - 1)], lane);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (i + 8 * k < count) sum_deep_gradients<T>(memory + (i + 8 * k) * deep_unit_bytes, x[k], p.levels, lane);
    }
    named_sync(6, 256);
    if (!takes_part) continue;
    // In a fixed order each warp has turns of its own, and takes those of several units together: to pass a turn is to
    // wait until all additions have come.
    const int together = ordered ? deep_turns_together : chunk;
#pragma unroll 1
    for (int i = 0; i < count; i += together) {
      const int end = min(i + together, count);
      const int own = units[first + min(i + lane, end - 1)];  // whose turn the lane awaits
      const std::int64_t place = static_cast<std::int64_t>(work.sequence) * p.key_tiles + own;
      int* const turns = p.deep_turns + place * 8 + 4 * half + warp;
      const bool awaits = ordered && i + lane < end;
      if (awaits) wait_turn(turns, turn(p, work, 2 * own));
      __syncwarp();
      add_units(first, i, end);
      if (!ordered) continue;
      __syncwarp();
      if (awaits) {
        order_turns();
        pass_turn(turns);
      }
    }
  }
  if (threadIdx.x == 128) give_slot_back(p, slot_number(slot_place));
  if (!takes_part) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = work.key_tile * (backward_keys >> levels[h]) + rows[h];
    if (levels[h] >= p.levels || row >= level_rows(p, levels[h])) continue;
    const float factor = weight(p, work, levels[h]);
    T* const to = row_of<T>(p.grad_k[levels[h]], work, row) + column;
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (column + 16 * e < p.width)
        *reinterpret_cast<uint2*>(to + 16 * e) =
            make_uint2(pack<T>(factor * key_sums[0][2 * h + e], factor * key_sums[1][2 * h + e]),
                       pack<T>(factor * key_sums[2][2 * h + e], factor * key_sums[3][2 * h + e]));
  }
}

}  // namespace hkt::kernels::cuda::sm90
