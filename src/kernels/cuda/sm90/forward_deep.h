// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, levels from 3 on. A tile of 128 x 128 scores has 16 x 16 of level 3. Those of all these levels,
// weighted, are summed at its resolution; the sums join the scores of level 2.
//
// Products that small would, in the main loop, only wait for memory, for each other and for wgmma. So before the first tile
// the consumers make the sums of all tiles, many at a time, in a slot of global memory: 1 KB for each tile of keys, so 8 bytes
// for each row of a head. Each step of the main loop prefetches the sums of the next tile.
#pragma once

#include "sm90/deep.h"
#include "sm90/forward_tile.h"

namespace hkt::kernels::cuda::sm90 {

// ---- where sums lie ----

// A tile of sums: 16 rows of queries with 16 keys each. Where threads join levels, each needs the keys 2j + c % 2 for the
// level-1 blocks j: the even keys come first, so that four are neighbours. Where wgmma sums levels, each thread needs all
// keys.
inline constexpr int deep_sum_row_bytes = 16 * 4;
static_assert(deep_tile_bytes == 16 * deep_sum_row_bytes);

enum class DeepOrder : std::uint8_t { even_keys_first, natural };
__device__ __forceinline__ int deep_column(DeepOrder order, int key) {
  return order == DeepOrder::natural ? key : key % 2 * 8 + key / 2;
}

// Slots are numbered over the grid, one for each 128 queries that a CTA works on at a time: nobody else uses it.
__device__ __forceinline__ float* deep_slot(const ForwardParameters& p, int slot) {
  return p.deep_sums + static_cast<std::int64_t>(slot) * ((p.length + 127) / 128) * (deep_tile_bytes / 4);
}

// A warp's sums are those of eight queries. In bytes, where a thread's begin, if the warps' lie one after another.
inline constexpr int deep_warp_bytes = 8 * deep_sum_row_bytes;
__device__ __forceinline__ int deep_offset(DeepOrder order, int thread) {
  return thread / 32 * deep_warp_bytes + thread % 32 / 8 * deep_sum_row_bytes +
         (order == DeepOrder::natural ? 0 : thread % 2 * 32);
}

// ---- reading sums ----

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
                 : "l"(from + i / 2 * 4 + i % 2 * (4 * deep_sum_row_bytes / 4))
                 : "memory");
  }
}

// Or by way of shared memory, where each warp of both consumers has room for its sums of one tile. Starts the copy of a tile
// of the slot, when all lanes have read what was there.
__device__ __forceinline__ void prefetch_deep(std::uint32_t to, const float* tile, int thread) {
  __syncwarp();
  cp_async_16(to + thread * 16, tile + thread % 64 * 4, true);
  cp_async_commit();
}
// A thread's number among the consumers', read anew each time, rather than kept in a register.
__device__ __forceinline__ int consumer_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread - first_consumer_warpgroup * warpgroup_threads;
}
__device__ __forceinline__ void wait_deep() {
  cp_async_wait<0>();
  __syncwarp();
}
__device__ __forceinline__ DeepScores load_deep(std::uint32_t from, int j) {
  return {{ld_shared_f32x4(from + j * 4), ld_shared_f32x4(from + 4 * deep_sum_row_bytes + j * 4)}};
}

// ---- making sums ----

// A thread reads 16 bytes of a row at once, the columns 8c to 8c + 7 of 32; products take them for columns 2c, 2c + 1,
// 2c + 8, 2c + 9 of 16, twice. That is another order of the columns, the same for both operands. `row` is where the
// thread's first columns are. Zeros outside.
template <int parts>
__device__ __forceinline__ void read_deep_row(uint4 (&to)[parts], const char* row, bool exists, int width, int c) {
#pragma unroll
  for (int i = 0; i < parts; ++i) {
    const bool inside = exists && (i < parts / 2 || 32 * i + 8 * c < width);  // a kernel's widths are more than half
    to[i] = inside ? __ldg(reinterpret_cast<const uint4*>(row) + 4 * i) : make_uint4(0, 0, 0, 0);
  }
}

// 16 rows of the item's queries as the left operand of products, the thread's two of them at `place` and 8 further. Of a
// level that is not there, zeros.
template <int steps, class Parameters>
__device__ __forceinline__ void read_deep_queries(std::uint32_t (&to)[steps][4], const Parameters& p, const Item& item,
                                                  int tile, int place, int c) {
  uint4 halves[2][steps / 2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int level = deep_level(place + 8 * h);
    const bool is_level = level < p.levels;
    const Array& array = p.deep_q[is_level ? level - 3 : 0];
    const int first = first_query(p, item) >> level;
    const int row = (tile * 128 >> level) + place + 8 * h - first_deep_row(16, level) - first;
    read_deep_row(halves[h], head_data(array, item, item.head) + 2 * (row * array.row_stride + 8 * c),
                  is_level && row >= 0 && row < p.deep_q_rows[is_level ? level - 3 : 0], p.width, c);
  }
#pragma unroll
  for (int i = 0; i < steps / 2; ++i) {
    const uint4 &a = halves[0][i], &b = halves[1][i];
    const std::uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      to[2 * i][k] = first[k];
      to[2 * i + 1][k] = second[k];
    }
  }
}

// A row of keys, moved on from half tile to half tile of a warp. Half tiles (64 keys) are dealt to the warps one by one. They
// are an even number, so a row of level 7 has a next one, too, although two half tiles share it.
struct DeepKey {
  const char* row;
  std::int64_t stride;
  int step;  // in rows
  int left;  // rows of the level after it; negative: there is no such row
};
__device__ __forceinline__ DeepKey deep_key(const ForwardParameters& p, const Item& item, int level, int half_tile,
                                            int warps, int row, int c) {
  const bool is_level = level < p.levels;
  const Array& array = p.deep_k[is_level ? level - 3 : 0];
  row += half_tile * (key_rows / 2) >> level;
  const int step = warps * (key_rows / 2) >> level;
  return {head_data(array, item, key_head(p, item)) + 2 * (row * array.row_stride + 8 * c), 2 * step * array.row_stride,
          step, is_level ? ((p.length - 1) >> level) - row : -1};
}
template <int parts>
__device__ __forceinline__ void read_next(uint4 (&to)[parts], DeepKey& key, bool exists, int width, int c) {
  read_deep_row(to, key.row, exists && key.left >= 0, width, c);
  key.row += key.stride;
  key.left -= key.step;
}

// The sums of 128 queries and of `tiles` tiles of keys, times `factor`, by so many warps. 64 keys have 8 of level 3, and
// 4 + 2 + 1 of levels 4 to 6 and half a one of level 7: two products with eight columns. Column 2c + e has of level 3 key
// 2c + e, and of the coarser ones key c of level 4 where e is 0; where it is 1, the keys 0 and 1 of level 5, that of level 6,
// that of level 7. So what a thread needs of another one is always in the same register there. Levels that are not there are
// zeros. Two half tiles are in flight at a time.
template <class T, int width, int warps, DeepOrder order, class Parameters>
__device__ __forceinline__ void make_deep_sums(float* slot, const Parameters& p, const Item& item, int query_tile,
                                               int tiles, float factor = 1) {
  static_assert(warps % 2 == 0);
  constexpr int parts = width / 32;
  // Nothing of this shall be kept in registers from one item to the next.
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  const int warp = warp_uniform(thread / 32 % warps);
  const int lane = thread % 32, r = lane / 4, c = lane % 4;
  const int half_tiles = 2 * tiles;
  const bool is_level4 = r % 2 == 0;
  const int coarser_level = is_level4 ? 4 : max(5, 4 + r / 2), coarser_row = is_level4 ? r / 2 : r == 3;
  DeepKey rows[2] = {deep_key(p, item, 3, warp, warps, r, c),
                     deep_key(p, item, coarser_level, warp, warps, coarser_row, c)};
  uint4 keys[2][2][parts];
  // Always writes: registers that may keep what they had would be kept for it during all of the item.
  const auto read_keys = [&](int i, int half_tile) {
    read_next(keys[i][0], rows[0], half_tile < half_tiles, p.width, c);
    read_next(keys[i][1], rows[1], half_tile < half_tiles, p.width, c);
  };
  read_keys(0, warp);
  read_keys(1, warp + warps);
  std::uint32_t queries[2][2 * parts][4];  // of level 3, of coarser ones
  read_deep_queries(queries[0], p, item, query_tile, r, c);
  read_deep_queries(queries[1], p, item, query_tile, 16 + r, c);
#pragma unroll
  for (int i = 0; i < 4 * parts; ++i)  // put into this order once, and not before each product
    fence_operand(queries[i / (2 * parts)][i % (2 * parts)]);

  const float c3 = factor * coefficient(p, item, 3), c4 = factor * coefficient(p, item, 4);
  const float c5 = factor * coefficient(p, item, deep_level(24 + r));  // or of a coarser one
  float* to =
      slot + warp / 2 * (deep_tile_bytes / 4) + r * (deep_sum_row_bytes / 4) + deep_column(order, warp % 2 * 8 + 2 * c);
  const auto make = [&](const uint4(&half_tile_keys)[2][parts]) {
    float products[2][2][4];  // two chains of products are shorter than one
#pragma unroll
    for (int i = 0; i < parts; ++i) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const uint4& key = half_tile_keys[block][i];
        mma<T>(products[block][0], queries[block][2 * i], key.x, key.y, i == 0);
        mma<T>(products[block][1], queries[block][2 * i + 1], key.z, key.w, i == 0);
      }
    }
    const float mine = c5 * (products[1][0][3] + products[1][1][3]);
    const float level5 = __shfl_sync(~0u, mine, r / 2 * 4 + c / 2);
    const float level6 = __shfl_sync(~0u, mine, (4 + r / 4) * 4 + 2);
    const float level7 = __shfl_sync(~0u, mine, 6 * 4 + 3);
    const float level4 = fmaf(c4, products[1][0][0] + products[1][1][0], level5 + level6 + level7);  // query r, key c
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float add = __shfl_sync(~0u, level4, (4 * h + r / 2) * 4 + c);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        to[h * (8 * deep_sum_row_bytes / 4) + deep_column(order, e)] =
            fmaf(c3, products[0][0][2 * h + e] + products[0][1][2 * h + e], add);
    }
    to += warps / 2 * (deep_tile_bytes / 4);
  };
#pragma unroll 1
  for (int half_tile = warp; half_tile < half_tiles; half_tile += 2 * warps) {
    make(keys[0]);
    read_keys(0, half_tile + 2 * warps);
    if (half_tile + warps >= half_tiles) break;
    make(keys[1]);
    read_keys(1, half_tile + 3 * warps);
  }
}

}  // namespace hkt::kernels::cuda::sm90
