// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, what its kernels share: parameters, the work of a CTA, the order of rows in tiles, named barriers.
//
// A CTA has 128 keys of a head and goes through tiles of 64 queries, a step for each. Scores are transposed: keys are rows
// of accumulators, queries are columns. In an accumulator of 64 x N a thread owns rows r and r + 8 of its warp's 16, and
// columns 2c, 2c + 1 of each block of eight (r = lane / 4, c = lane % 4):
// element 4j + 2h + e is row r + 8h, column 8j + 2c + e.
//
// Level 0 is the fine level; levels 1 and 2 are called coarse, levels from 3 on deep. The kernels are compiled for
// !coarse      one level,
// coarse       two or three levels,
// coarse, deep four levels or more.
//
// Rows are permuted as they are loaded, by tensor maps that see every second or fourth row, so that coarse scores belong
// to the thread that owns the fine ones:
// queries   tile row 16a + y holds row 4y + a; of level 1, tile row 16b + y holds row 2y + b; level 2 is in natural
//           order. Columns y of the blocks of all levels are then the same four rows, their two pairs, and the quad.
// keys      tile row 16s + 8h + r (s is the warp, of the eight that have fine keys) holds row 32(s / 2) + 4r + 2(s % 2)
//           + h; of level 1, tile row 8s + r holds row 16(s / 2) + 2r + s % 2; level 2 is in natural order, and its row
//           8(s / 2) + r belongs to both rows 8s + r of a pair of warps. So rows r and r + 8 of an accumulator are a
//           pair of keys.
// Sums of 2 x 2 gradients of scores are then sums in a thread. Those of 4 x 4 are made in the thread over queries, and
// over keys by products, whose inner dimension meets each key of level 2 twice, or in their accumulators.
#pragma once

#include "common/cp_async.h"
#include "common/launch.h"
#include "kernels/attention.h"
#include "sm90/deep.h"
#include "sm90/tma.h"
#include "sm90/wgmma.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int backward_keys = 128;    // of a CTA
inline constexpr int backward_queries = 64;  // of a step
inline constexpr int query_tiles_per_key_tile = backward_keys / backward_queries;

// Query sums: the gradients of a tile of queries before they are scaled, float32 (FlashAttention-3's dQaccum). CTAs add to
// them; finish_queries() makes grad_q of them. They are in the order of accumulators for levels 0 to 2, in natural order
// for deep ones. Of a panel of columns there are 64 rows of level 0, then 32 of level 1, 16 of level 2, and so on;
// the one row of level 7, which two tiles share, is the even one's. Where a level's rows begin:
__host__ __device__ constexpr int first_sum_row(int level) {
  return 2 * backward_queries - (2 * backward_queries >> level);
}
constexpr int query_sums_size(int columns, bool coarse, bool deep) {
  return first_sum_row(deep ? max_levels : coarse ? 3 : 1) * columns;
}
static_assert(first_sum_row(3) == 64 + 32 + 16 && first_sum_row(max_levels) == 128);

// Gradients of scores of level 1 that a step leaves in the CTA's slot (wide kernels, backward_wide_second_pass.h): 64 keys
// x 32 queries, bf16 or fp16.
inline constexpr int coarse_gradients_bytes = 64 * 32 * 2;
// Deep scores, and later their gradients, of a tile of queries in the CTA's slot (backward_deep.h): 16 keys x 8 queries of
// level 3, float32.
inline constexpr int deep_tile_size = 16 * 8;

// Semaphores of the sums that CTAs add in a fixed order: see backward_semaphores.h.
inline constexpr int semaphores_per_query_tile = 2;
inline constexpr int deep_semaphores_per_unit = 8;

// Tiles of queries lie at multiples of their size, wherever the queries start, and are counted from the one at first_tile_row
// on. Maps have the rows of the queries alone: of tile row 16a + y of a tile, whose number among all with its remainder is
// 16 · tile + y, what is read is number 16 · tile + y - shift0[a] of theirs (see remainder_rows).
struct BackwardParameters {
  CUtensorMap q0[4], grad_out[4], k0[4], v[4];  // one for each remainder of a row's position
  CUtensorMap q1[2], k1[2];
  CUtensorMap q2, k2;
  int shift0[4], shift1[2], shift2;
  const float* lse;                // [batch, heads, 64 · query_tiles], base 2; +infinity for padding
  const float* delta;              // likewise
  float* query_sums;               // [batch, heads, query_tiles, panels, query_sums_size]
  std::uint8_t* coarse_gradients;  // [slots, query_tiles, coarse_gradients_bytes]; wide kernels
  int* semaphores;                 // [batch, heads, query_tiles, 2]; null: additions come in any order
  const float* weights;
  const std::int64_t* lengths;
  Array grad_k[max_levels];
  Array grad_v;
  float scale;
  int batch;
  int heads;
  int heads_per_key_head;
  int length;
  int start;      // the first query's position
  int end;        // the position after the last query's
  int first_row;  // the position of the first tile of queries, a multiple of backward_keys
  int width;
  int levels;
  int query_tiles;
  int key_tiles;
  int group;   // heads that are worked on side by side, each tile of keys in all of them before the next tile
  int groups;  // the last one has all heads that are left
  bool causal;
  bool rotate;      // CTAs begin at different tiles of queries
  bool last_first;  // the CTAs of the last keys start first

  Array deep_q[max_levels - 3];  // levels from 3 on
  Array deep_k[max_levels - 3];
  float* deep_sums;  // [slots, query_tiles, deep_tile_size]
  int* slots_taken;  // [slots], whether a CTA has the slot: see backward_semaphores.h
  int*
      deep_semaphores;  // [batch, heads, query_tiles / 2, 8]: as `semaphores`, for deep sums of 128 queries, one per warp
  int slots;
};

// ---- the work of a CTA ----

struct BackwardWork {
  int batch;
  int head;
  int key_head;  // that the head reads
  int sequence;  // batch and head
  int length;    // valid positions
  int key_tile;
  int first;     // tile of queries
  int steps;     // and how many there are; 0 if the keys are padding, or no query sees them
  int rotation;  // the tile to begin at, after the first: CTAs should not add to the same sums at the same time

  __device__ __forceinline__ int query_tile(int step) const {
    const int rotated = step + rotation;
    return first + (rotated >= steps ? rotated - steps : rotated);
  }
  // Keys after the sequence's end are among them.
  __device__ __forceinline__ bool has_padding() const { return (key_tile + 1) * backward_keys > length; }
};

// The number of steps is a multiple of `multiple`. There are always query tiles for that: they fill whole tiles of keys.
template <int multiple>
__device__ __forceinline__ BackwardWork backward_work(const BackwardParameters& p, unsigned cta) {
  static_assert(query_tiles_per_key_tile % multiple == 0);
  BackwardWork work;
  const unsigned group_ctas = static_cast<unsigned>(p.group) * p.key_tiles;
  const unsigned last = p.groups - 1;
  const unsigned group = min(cta / group_ctas, last);
  const unsigned rest = cta - group * group_ctas;
  const unsigned first_sequence = group * p.group;
  const unsigned size = group < last ? p.group : static_cast<unsigned>(p.batch) * p.heads - first_sequence;
  work.key_tile = static_cast<int>(rest / size);
  if (p.last_first) work.key_tile = p.key_tiles - 1 - work.key_tile;
  work.sequence = static_cast<int>(first_sequence + rest % size);
  work.batch = work.sequence / p.heads;
  work.head = work.sequence % p.heads;
  work.key_head = work.head / p.heads_per_key_head;
  work.length = p.length;
  if (p.lengths != nullptr) {
    const std::int64_t length = p.lengths[work.batch];
    work.length = length < 0 ? 0 : length < p.length ? static_cast<int>(length) : p.length;
  }
  constexpr int rows = backward_queries * multiple;
  const int end = min(work.length, p.end);
  const int tiles = end > p.start ? (end - p.first_row + rows - 1) / rows * multiple : 0;
  const int first_key = work.key_tile * backward_keys;
  work.first = p.causal ? max(0, (first_key - p.first_row) / backward_queries) : 0;
  work.steps = first_key < work.length ? max(0, tiles - work.first) : 0;
  work.rotation = p.rotate && work.steps > 0 ? 2 * work.key_tile % work.steps : 0;
#ifdef HKT_RACECHECK
  if (work.steps % multiple != 0 || work.first + work.steps > p.query_tiles) __trap();
#endif
  return work;
}

__device__ __forceinline__ float weight(const BackwardParameters& p, const BackwardWork& work, int level) {
  return level < p.levels ? p.scale * p.weights[static_cast<std::int64_t>(work.head) * p.levels + level] : 0;
}

template <class T>
__device__ __forceinline__ T* row_of(const Array& array, const BackwardWork& work, int head, int row) {
  return static_cast<T*>(array.data) + work.batch * array.batch_stride + head * array.head_stride +
         row * array.row_stride;
}
// Of the CTA's head.
template <class T>
__device__ __forceinline__ T* row_of(const Array& array, const BackwardWork& work, int row) {
  return row_of<T>(array, work, work.head, row);
}

// ---- warps ----

// Of a CTA's four warpgroups the first one loads, and has TMA add query sums; two have 64 fine keys each; the last one has the
// coarse levels, whose query sums it adds itself, except in narrow kernels with a fixed order of additions. Wide kernels of
// one level do without the last one.
inline constexpr int fine_threads = 2 * warpgroup_threads;
inline constexpr int fine_and_coarse_threads = 3 * warpgroup_threads;
inline constexpr int first_fine_thread = warpgroup_threads;

// All registers of an SM, for a CTA whose warpgroups have so many for each thread.
constexpr bool registers_fit(int load, int fine, int coarse) {
  return (load + 2 * fine + coarse) * warpgroup_threads <= 64 * 1024;
}

// Named barriers; 0 is __syncthreads.
enum class BackwardBarrier : int {
  coarse_warpgroup = 1,
  fine_warpgroup_0,
  fine_warpgroup_1,
  fine_warpgroups,
  deep_scores,     // are in the slot: the fine warpgroups make them, the coarse one reads them
  deep_gradients,  // are in the slot: the coarse warpgroup leaves them, the fine ones read them
};
// Of one of the two fine warpgroups.
__device__ __forceinline__ BackwardBarrier fine_warpgroup_barrier(int which) {
  return static_cast<BackwardBarrier>(static_cast<int>(BackwardBarrier::fine_warpgroup_0) + which);
}

// ---- launches; each .cu file in instantiations/ has some of the kernels ----

template <class T, int width, bool coarse, bool deep>
void launch_backward_narrow(const BackwardParameters& parameters, const Device& device);
template <class T, bool coarse, bool deep>
void launch_backward_wide(const BackwardParameters& parameters, const Device& device);

// After them. Sums of all tiles of queries, in panels of `columns` columns:
struct QuerySums {
  const float* sums;
  int columns;
  int panels;
  int query_tiles;
};
// Writes grad_q, and of each tile of queries and panel its part of the weights' gradient: [batch, heads, query_tiles
// · panels, levels].
void finish_queries(const AttentionBackward& problem, const Device& device, const QuerySums& sums, float* partials);

}  // namespace hkt::kernels::cuda::sm90
