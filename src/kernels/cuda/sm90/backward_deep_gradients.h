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

// A warp makes them.
template <class T>
__device__ __forceinline__ void sum_deep_gradients(std::uint32_t to, const float* slot, const BackwardWork& work,
                                                   int unit, int levels, int lane) {
  const int a = lane / 4, b = lane % 4;  // keys 2a and 2a + 1, queries 4b to 4b + 3
  const int tile = 2 * unit + b / 2;
  float x[2][4] = {};
  if (tile < work.first + work.steps) {
    const float* const from = slot + static_cast<std::int64_t>(tile) * deep_tile_size + deep_place(2 * a, b % 2 * 4);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("ld.global.f32 %0, [%1];" : "=f"(x[i / 4][i % 4]) : "l"(from + i / 4 * 8 + i % 4 * 2) : "memory");
  }
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

// Right operands for products over 16 rows and a warp's 32 columns: block j has columns 4n + j of these.
struct DeepColumns {
  DeepRow rows[4];  // 2c, 2c + 1, and 8 more
  __device__ __forceinline__ void read(uint2 (&pairs)[4], int unit, int column, int width) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = read_deep<uint2>(rows[i], unit, column, width);
  }
};
__device__ __forceinline__ DeepColumns deep_columns(const Array (&arrays)[max_levels - 3], const BackwardParameters& p,
                                                    const BackwardWork& work, int block, int lane) {
  DeepColumns columns;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    columns.rows[i] = deep_row(arrays, p, work, 16 * block + i / 2 * 8 + lane % 4 * 2 + i % 2);
  return columns;
}
template <class T>
__device__ __forceinline__ void multiply_deep(float (&sums)[4][4], const std::uint32_t (&a)[4], const uint2 (&pairs)[4],
                                              bool is_first = false) {
  constexpr unsigned low = 0x5410, high = 0x7632;
  sm80::multiply<T>(sums[0], a, __byte_perm(pairs[0].x, pairs[1].x, low), __byte_perm(pairs[2].x, pairs[3].x, low),
                    is_first);
  sm80::multiply<T>(sums[1], a, __byte_perm(pairs[0].x, pairs[1].x, high), __byte_perm(pairs[2].x, pairs[3].x, high),
                    is_first);
  sm80::multiply<T>(sums[2], a, __byte_perm(pairs[0].y, pairs[1].y, low), __byte_perm(pairs[2].y, pairs[3].y, low),
                    is_first);
  sm80::multiply<T>(sums[3], a, __byte_perm(pairs[0].y, pairs[1].y, high), __byte_perm(pairs[2].y, pairs[3].y, high),
                    is_first);
}

// Half h of the sums of such products: the thread's eight columns of a row, from 8c on, are neighbours.
__device__ __forceinline__ void add_deep_row(float* to, const float (&sums)[4][4], int h) {
#pragma unroll
  for (int e = 0; e < 2; ++e)
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to + 4 * e), "f"(sums[0][2 * h + e]),
                 "f"(sums[1][2 * h + e]), "f"(sums[2][2 * h + e]), "f"(sums[3][2 * h + e])
                 : "memory");
}
template <class T>
__device__ __forceinline__ void write_deep_row(const float (&sums)[4][4], int h, const BackwardParameters& p,
                                               const BackwardWork& work, int place, int column) {
  const int level = deep_level(place);
  if (level >= p.levels || column >= p.width) return;
  const int row = work.key_tile * (backward_keys >> level) + place - first_deep_row(16, level);
  if (row >= level_rows(p, level)) return;
  const float factor = weight(p, work, level);
  std::uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[i] = pack<T>(factor * sums[2 * i % 4][2 * h + i / 2], factor * sums[2 * i % 4 + 1][2 * h + i / 2]);
  *reinterpret_cast<uint4*>(row_of<T>(p.grad_k[level], work, row) + column) = make_uint4(x[0], x[1], x[2], x[3]);
}

// A warpgroup: the gradients of the block's keys. `gradients` has `count` units, from `first` of the block's on.
template <class T, int width>
struct DeepKeyGradients {
  float sums[2][4][4] = {};
  __device__ __forceinline__ void add(const BackwardParameters& p, const BackwardWork& work, std::uint32_t gradients,
                                      int first, int count, int warp, int lane) {
    if (32 * warp >= width) return;
    const DeepUnits units = deep_units(p, work);
    const int column = 32 * warp + lane / 4 * 4;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      if (block == 1 && p.levels <= 4) break;
      const DeepColumns columns = deep_columns(p.deep_q, p, work, block, lane);
      constexpr int ahead = 4;
#pragma unroll 1
      for (int i = 0; i < count; i += ahead) {
        uint2 pairs[ahead][4];
#pragma unroll
        for (int k = 0; k < ahead; ++k) columns.read(pairs[k], units[first + min(i + k, count - 1)], column, p.width);
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          if (i + k >= count) break;
          std::uint32_t a[4];
          sm80::load_matrices(
              a, gradients + (i + k) * deep_unit_bytes + block * (16 * 32) + lane % 16 * 32 + lane / 16 * 16);
          multiply_deep<T>(sums[block], a, pairs[k]);
        }
      }
    }
  }
  __device__ __forceinline__ void write(const BackwardParameters& p, const BackwardWork& work, int warp, int lane) {
    if (32 * warp >= width) return;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      write_deep_row<T>(sums[i / 2], i % 2, p, work, 8 * i + lane / 4, 32 * warp + lane % 4 * 8);
  }
};

inline constexpr int deep_turns_together = 8;

// A warpgroup: sums for the gradients of queries.
template <class T, int width>
struct DeepQuerySums {
  uint2 keys[2][4];
  __device__ __forceinline__ DeepQuerySums(const BackwardParameters& p, const BackwardWork& work, int warp, int lane) {
#pragma unroll
    for (int block = 0; block < 2; ++block)
      deep_columns(p.deep_k, p, work, block, lane)
          .read(keys[block], work.key_tile, 32 * (warp % (width / 32)) + lane / 4 * 4, p.width);
  }
  __device__ __forceinline__ void add(const BackwardParameters& p, const BackwardWork& work, std::uint32_t gradients,
                                      int first, int count, int warp, int lane) const {
    constexpr int warps = width / 32;
    const bool ordered = p.turns != nullptr;
    const DeepUnits units = deep_units(p, work);
    const int column = 32 * (warp % warps) + lane % 4 * 8;
    // Without an order the warps of a narrow head share the units. With one, each warp has turns of its own, and takes
    // those of several units together, because to pass a turn is to wait until all additions have come.
    if (ordered && warp >= warps) return;
    const int together = ordered ? deep_turns_together : 1;
    const int step = ordered ? together : 4 / warps;
#pragma unroll 1
    for (int i = ordered ? 0 : warp / warps; i < count; i += step) {
      __syncwarp();
      const int end = min(i + together, count);
      const int own = units[first + min(i + lane, end - 1)];  // whose turn the lane awaits
      int* const turns = p.deep_turns + (static_cast<std::int64_t>(work.sequence) * p.key_tiles + own) * 4 + warp;
      const bool awaits = ordered && i + lane < end;
      if (awaits) wait_turn(turns, turn(p, work, 2 * own));
      __syncwarp();
#pragma unroll 1
      for (int j = i; j < end; ++j) add_unit(p, work, gradients + j * deep_unit_bytes, units[first + j], column, lane);
      if (ordered) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        __syncwarp();
        if (awaits) pass_turn(turns);
      }
    }
  }

 private:
  __device__ __forceinline__ void add_unit(const BackwardParameters& p, const BackwardWork& work,
                                           std::uint32_t gradients, int unit, int column, int lane) const {
    constexpr int columns = width < 64 ? width : 64;
    constexpr int size = query_sums_size(columns, true, true);
    constexpr int next_tile = width / columns * size;
    float* const to =
        p.query_sums +
        ((static_cast<std::int64_t>(work.sequence) * p.query_tiles + 2 * unit) * (width / columns) + column / columns) *
            size +
        112 * columns + column % columns;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      if (block == 1 && p.levels <= 4) break;
      std::uint32_t a[4];
      sm80::load_transposed(a, gradients + block * (16 * 32) + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16);
      float sums[4][4];
      multiply_deep<T>(sums, a, keys[block], true);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int place = 16 * block + 8 * h + lane / 4;
        const int level = block == 0 ? 3 : deep_level(place);
        if (level >= p.levels) continue;
        const int row = place - first_deep_row(16, level);
        const int in_tile = level == 7 ? 1 : backward_queries >> level;  // the even tile has the row of level 7
        add_deep_row(to + row / in_tile * next_tile + (first_deep_row(8, level) + row % in_tile) * columns, sums, h);
      }
    }
  }
};

// The two warpgroups with keys of level 0: one makes gradients of keys, the other sums for queries. `memory`: shared
// memory that nothing else uses any more, for `chunk` units.
template <class T, int width, int chunk>
__device__ __forceinline__ void add_deep_gradients(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t slot_place, std::uint32_t memory) {
  const float* const slot = deep_slot(p, slot_place);
  const int half = __shfl_sync(~0u, again(threadIdx.x) / 128 - 1, 0);
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const DeepUnits units = deep_units(p, work);
  const auto each_chunk = [&](const auto& add) {
#pragma unroll 1
    for (int first = 0; first < units.count; first += chunk) {
      const int count = min(chunk, units.count - first);
      if (first > 0) named_sync(6, 256);  // all have done with those before
#pragma unroll 2
      for (int i = 4 * half + warp; i < count; i += 8)
        sum_deep_gradients<T>(memory + i * deep_unit_bytes, slot, work, units[first + i], p.levels, lane);
      named_sync(6, 256);
      add(first, count);
    }
  };
  if (half == 0) {
    DeepKeyGradients<T, width> keys;
    each_chunk([&](int first, int count) { keys.add(p, work, memory, first, count, warp, lane); });
    keys.write(p, work, warp, lane);
    if (threadIdx.x % 128 == 0) give_deep_slot_back(p, deep_slot_number(slot_place));
  } else {
    const DeepQuerySums<T, width> queries(p, work, warp, lane);
    each_chunk([&](int first, int count) { queries.add(p, work, memory, first, count, warp, lane); });
  }
}

}  // namespace hkt::kernels::cuda::sm90
