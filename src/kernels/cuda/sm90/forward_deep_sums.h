// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, levels from 3 on: how consumers make their sums before the first tile. See forward_deep.h.
#pragma once

#include "forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

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
template <int steps>
__device__ __forceinline__ void read_deep_queries(std::uint32_t (&to)[steps][4], const ForwardParameters& p,
                                                  const Item& item, int tile, int place, int c) {
  uint4 halves[2][steps / 2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int level = deep_level(place + 8 * h);
    const bool is_level = level < p.levels;
    const Array& array = p.deep_q[is_level ? level - 3 : 0];
    const int row = (tile * 128 >> level) + place + 8 * h - first_deep_row(16, level);
    read_deep_row(halves[h], head_data(array, item) + 2 * (row * array.row_stride + 8 * c),
                  is_level && row <= (p.length - 1) >> level, p.width, c);
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

// A row of keys of a warp's units. A unit is half a tile; warps take units in turn. They are an even number, so a row of
// level 7 has a next one, too, although two units share it.
struct DeepKey {
  const char* row;
  std::int64_t stride;
  int step;  // in rows
  int left;  // rows of the level after it; negative: there is no such row
};
__device__ __forceinline__ DeepKey deep_key(const ForwardParameters& p, const Item& item, int level, int unit,
                                            int warps, int row, int c) {
  const bool is_level = level < p.levels;
  const Array& array = p.deep_k[is_level ? level - 3 : 0];
  row += unit * (key_rows / 2) >> level;
  const int step = warps * (key_rows / 2) >> level;
  return {head_data(array, item) + 2 * (row * array.row_stride + 8 * c), 2 * step * array.row_stride, step,
          is_level ? ((p.length - 1) >> level) - row : -1};
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
// zeros. Two units are on their way at a time.
template <class T, int width, int warps, DeepOrder order>
__device__ __forceinline__ void make_deep_sums(float* slot, const ForwardParameters& p, const Item& item,
                                               int query_tile, int tiles, float factor = 1) {
  static_assert(warps % 2 == 0);
  constexpr int parts = width / 32;
  // Nothing of this shall be kept in registers from one item to the next.
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  const int warp = uniform(thread / 32 % warps);
  const int lane = thread % 32, r = lane / 4, c = lane % 4;
  const int units = 2 * tiles;
  const bool is_level4 = r % 2 == 0;
  const int coarser_level = is_level4 ? 4 : max(5, 4 + r / 2), coarser_row = is_level4 ? r / 2 : r == 3;
  DeepKey rows[2] = {deep_key(p, item, 3, warp, warps, r, c),
                     deep_key(p, item, coarser_level, warp, warps, coarser_row, c)};
  uint4 keys[2][2][parts];
  // Always writes: registers that may keep what they had would be kept for it during all of the item.
  const auto read_keys = [&](int i, int unit) {
    read_next(keys[i][0], rows[0], unit < units, p.width, c);
    read_next(keys[i][1], rows[1], unit < units, p.width, c);
  };
  read_keys(0, warp);
  read_keys(1, warp + warps);
  std::uint32_t queries[2][2 * parts][4];  // of level 3, of coarser ones
  read_deep_queries(queries[0], p, item, query_tile, r, c);
  read_deep_queries(queries[1], p, item, query_tile, 16 + r, c);
#pragma unroll
  for (int i = 0; i < 4 * parts; ++i)  // put into this order once, and not before each product
    pin(queries[i / (2 * parts)][i % (2 * parts)]);

  const float c3 = factor * coefficient(p, item, 3), c4 = factor * coefficient(p, item, 4);
  const float c5 = factor * coefficient(p, item, deep_level(24 + r));  // or of a coarser one
  float* to =
      slot + warp / 2 * (deep_tile_bytes / 4) + r * (deep_row_bytes / 4) + deep_column(order, warp % 2 * 8 + 2 * c);
  const auto make = [&](const uint4(&unit_keys)[2][parts]) {
    float products[2][2][4];  // two chains of products are shorter than one
#pragma unroll
    for (int i = 0; i < parts; ++i) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const uint4& key = unit_keys[block][i];
        sm80::multiply<T>(products[block][0], queries[block][2 * i], key.x, key.y, i == 0);
        sm80::multiply<T>(products[block][1], queries[block][2 * i + 1], key.z, key.w, i == 0);
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
        to[h * (8 * deep_row_bytes / 4) + deep_column(order, e)] =
            fmaf(c3, products[0][0][2 * h + e] + products[0][1][2 * h + e], add);
    }
    to += warps / 2 * (deep_tile_bytes / 4);
  };
#pragma unroll 1
  for (int unit = warp; unit < units; unit += 2 * warps) {
    make(keys[0]);
    read_keys(0, unit + 2 * warps);
    if (unit + warps >= units) break;
    make(keys[1]);
    read_keys(1, unit + 3 * warps);
  }
}

}  // namespace hkt::kernels::cuda::sm90
