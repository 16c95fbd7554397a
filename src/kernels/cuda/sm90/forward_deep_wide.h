// Forward on Hopper, levels from 3 on, for width 128: straight from global memory, because there is no room for rows in
// shared memory.
#pragma once

#include "forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

// A thread's rows in an item. Warps 0 and 1 multiply the 16 keys of level 3 by eight queries each; warp 2 those of level 4,
// warp 3 those of coarser levels, eight rows of each.
struct WideDeepRows {
  const char* query;  // null: there is no such level
  const char* keys;   // the level's first
  std::int64_t stride;
  int row;   // of the first tile
  int rows;  // of a tile
  int last;  // that there is. After it, it comes again: nobody sees its scores.
  float weight;
  __device__ __forceinline__ const char* key(int tile, int more) const {
    return keys + min(tile * rows + row + more, last) * stride;
  }
};
__device__ __forceinline__ WideDeepRows wide_deep_rows(const ForwardParameters& p, const Item& item, int warp) {
  const int r = threadIdx.x % 32 / 4;
  const int query = (warp < 2 ? 0 : 16) + 8 * (warp % 2) + r, key = warp < 2 ? r : query;
  const int level = deep_level(query);
  if (level >= p.levels) return {nullptr, nullptr, 0, 0, 0, 0, 0};
  const int first = first_deep_row(16, level), rows = 128 >> level, last = (p.length - 1) >> level;
  const Array& queries = p.deep_q[level - 3];
  const Array& keys = p.deep_k[level - 3];
  return {head_data(queries, item) + 2 * min(item.tile * rows + query - first, last) * queries.row_stride,
          head_data(keys, item),
          2 * keys.row_stride,
          key - first,
          rows,
          last,
          coefficient(p, item, level)};
}

// A warp: of 16 keys (from level 4 on, 8) and 8 queries, weighted, in an accumulator. A thread reads 16 bytes of a row at a
// time, the columns 8c to 8c + 7 of 32; products take them for columns 2c, 2c + 1, 2c + 8, 2c + 9 of 16, twice. That is
// another order of the columns, the same for both operands.
template <class T>
__device__ __forceinline__ void multiply_deep_rows(float (&products)[4], const WideDeepRows& rows,
                                                   const ForwardParameters& p, int key_tile, int tiles, int warp) {
  const int c = threadIdx.x % 4;
  const bool is_level = rows.query != nullptr;
  const char* const keys[2] = {rows.key(key_tile, 0), rows.key(key_tile, 8)};
  const auto read = [&](const char* row, int i, bool exists) {
    const bool inside = exists && (i < 2 || 32 * i + 8 * c < p.width);  // the width is more than 64
    return inside ? __ldg(reinterpret_cast<const uint4*>(row) + c + 4 * i) : make_uint4(0, 0, 0, 0);
  };
  uint4 a[4][2], b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i][0] = read(keys[0], i, is_level);
    a[i][1] = read(keys[1], i, warp < 2);
    b[i] = read(rows.query, i, is_level);
  }
  // The next tile's rows are asked for early, so that they are near when they are needed.
  if (key_tile + 1 < tiles && is_level && c < 2 && 64 * c < p.width) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(rows.key(key_tile + 1, 0) + c * 128));
    if (warp < 2) asm volatile("prefetch.global.L1 [%0];" ::"l"(rows.key(key_tile + 1, 8) + c * 128));
  }
  float more[4];  // two chains of products are shorter than one
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t first[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y};
    const std::uint32_t second[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
    sm80::multiply<T>(products, first, b[i].x, b[i].y, i == 0);
    sm80::multiply<T>(more, second, b[i].z, b[i].w, i == 0);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) products[i] = rows.weight * (products[i] + more[i]);
}

inline constexpr int wide_deep_bytes = deep_tile + coarser_deep_bytes;

// A warpgroup: the sums of a tile, to `to`.
template <class T>
__device__ __forceinline__ void make_wide_deep_sums(std::uint32_t to, const WideDeepRows& rows,
                                                    const ForwardParameters& p, int key_tile, int tiles, int warp) {
  const int r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const int n = warp % 2;
  const std::uint32_t coarser = to + deep_tile;
  const bool has_coarser = p.levels > 4;
  float products[4];
  if (warp < 2 || has_coarser) multiply_deep_rows<T>(products, rows, p, key_tile, tiles, warp);
  if (warp >= 2 && has_coarser) store_coarser_deep(coarser, n, products[0], products[1], threadIdx.x % 32);
  named_sync(1, 128);  // coarser ones are there, and all have read the sums of the tile before
  if (warp < 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // keys r and r + 8
      const float add = has_coarser ? coarser_deep_sum(coarser, h, n, threadIdx.x % 32) : 0;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        store_float(to + (8 * n + 2 * c + e) * deep_row + r % 2 * 32 + (4 * h + r / 2) * 4, products[2 * h + e] + add);
    }
  }
  named_sync(1, 128);
}

}  // namespace hkt::kernels::cuda::sm90
