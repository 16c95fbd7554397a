// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, what its kernels share: parameters, the order of work, how tiles lie.
//
// A block has 128 keys of a head and goes through tiles of 64 queries. Scores are transposed: keys are rows of
// accumulators, queries are columns. In an accumulator of 64 x N a thread owns rows r and r + 8 of its warp's 16, and
// columns 2c, 2c + 1 of each block of eight (r = lane / 4, c = lane % 4):
// element 4j + 2h + e is row r + 8h, column 8j + 2c + e.
//
// Both are permuted as they are loaded, by maps that see every second or fourth row, so that coarse values belong to
// the thread that owns the fine ones:
// queries   place 16a + y holds row 4y + a; of level 1, place 16b + y holds row 2y + b; level 2 is in natural order.
//           Columns y of the blocks of all levels are then the same four rows, their two pairs, and the quad.
// keys      place 16s + 8h + r (s is the warp, of the block's eight) holds row 32(s / 2) + 4r + 2(s % 2) + h; of
//           level 1, place 8s + r holds row 16(s / 2) + 2r + s % 2; level 2 is in natural order, and its row
//           8(s / 2) + r belongs to both places 8s + r of a pair of warps. So rows r and r + 8 of an accumulator are
//           a pair of keys.
// Sums of 2 x 2 gradients of scores are then sums in a thread. Those of 4 x 4 are made in the thread over queries, and
// over keys by products, whose inner dimension meets each key of level 2 twice, or in their accumulators.
#pragma once

#include "../launch.h"
#include "deep.h"
#include "hopper.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int backward_keys = 128;
inline constexpr int backward_queries = 64;

// Sums for the gradients of a tile of queries, of `width` columns: those of level 0, then of levels 1 and 2, and in
// natural order those of coarser ones.
constexpr int query_sums_size(int width, bool coarse, bool deep = false) {
  return (deep ? 64 + 32 + 16 + first_deep_row(8, max_levels) : coarse ? 64 + 32 + 16 : 64) * width;
}
// Gradients of scores of level 1 of a step, 64 keys x 32 queries, in bytes.
inline constexpr int coarse_gradients_bytes = 64 * 32 * 2;

struct BackwardParameters {
  CUtensorMap q0[4], grad_out[4], k0[4], v[4];  // one for each remainder of a row's number
  CUtensorMap q1[2], k1[2];
  CUtensorMap q2, k2;
  const float* lse;                // [batch, heads, 64 · query_tiles], base 2; +infinity for padding
  const float* delta;              // likewise
  float* query_sums;               // [batch, heads, query_tiles, panels of 64 columns], in the order of accumulators
  std::uint8_t* coarse_gradients;  // a part for each slot: see backward_128_late.h; widths above 64
  int* turns;  // [batch, heads, query_tiles, 2], whose turn it is to add to query_sums; null: everybody's
  const float* weights;
  const std::int64_t* lengths;
  Array grad_k[max_levels];
  Array grad_v;
  float scale;
  int batch;
  int heads;
  int length;
  int width;
  int levels;
  int query_tiles;
  int key_tiles;
  int group;   // heads that are worked on side by side, each tile of keys in all of them before the next tile
  int groups;  // the last one has all heads that are left
  bool causal;
  bool rotate;      // blocks begin at different tiles of queries
  bool last_first;  // the last keys' blocks start first

  Array deep_q[max_levels - 3];  // levels from 3 on
  Array deep_k[max_levels - 3];
  float* deep_sums;  // a part for each slot: see backward_deep.h
  int* slots_taken;  // whether a block has the slot
  int* deep_turns;   // [batch, heads, key_tiles, 8]: as `turns`, for a warp's sums of levels from 3 on, 128 queries
  int slots;         // how many there are
};

// ---- the work of a block ----

struct BackwardWork {
  int batch;
  int head;
  int sequence;  // batch and head
  int length;    // valid rows
  int key_tile;
  int first;     // tile of queries
  int steps;     // and how many there are; 0 if the keys are padding
  int rotation;  // where to start among them: blocks should not add to the same sums at the same time

  __device__ __forceinline__ int query_tile(int step) const {
    const int turned = step + rotation;
    return first + (turned >= steps ? turned - steps : turned);
  }
  // Keys after the sequence's end are among them.
  __device__ __forceinline__ bool has_padding() const { return (key_tile + 1) * backward_keys > length; }
};

// Steps are made a multiple of `multiple`; the parameters have tiles of queries enough for 2.
template <int multiple>
__device__ __forceinline__ BackwardWork backward_work(const BackwardParameters& p, unsigned block) {
  BackwardWork work;
  const unsigned group_blocks = static_cast<unsigned>(p.group) * p.key_tiles;
  const unsigned last = p.groups - 1;
  const unsigned group = min(block / group_blocks, last);
  const unsigned rest = block - group * group_blocks;
  const unsigned first_sequence = group * p.group;
  const unsigned size = group < last ? p.group : static_cast<unsigned>(p.batch) * p.heads - first_sequence;
  work.key_tile = static_cast<int>(rest / size);
  if (p.last_first) work.key_tile = p.key_tiles - 1 - work.key_tile;
  work.sequence = static_cast<int>(first_sequence + rest % size);
  work.batch = work.sequence / p.heads;
  work.head = work.sequence % p.heads;
  work.length = p.length;
  if (p.lengths != nullptr) {
    const std::int64_t length = p.lengths[work.batch];
    work.length = length < 0 ? 0 : length < p.length ? static_cast<int>(length) : p.length;
  }
  constexpr int rows = backward_queries * multiple;
  const int tiles = (work.length + rows - 1) / rows * multiple;
  work.first = p.causal ? work.key_tile * (backward_keys / backward_queries) : 0;
  work.steps = work.key_tile * backward_keys < work.length ? tiles - work.first : 0;
  work.rotation = p.rotate && work.steps > 0 ? 2 * work.key_tile % work.steps : 0;
  return work;
}

__device__ __forceinline__ float weight(const BackwardParameters& p, const BackwardWork& work, int level) {
  return level < p.levels ? p.scale * p.weights[static_cast<std::int64_t>(work.head) * p.levels + level] : 0;
}

__device__ __forceinline__ int level_rows(const BackwardParameters& p, int level) {
  return (p.length + (1 << level) - 1) >> level;
}

template <class T>
__device__ __forceinline__ T* row_of(const Array& array, const BackwardWork& work, int row) {
  return static_cast<T*>(array.data) + work.batch * array.batch_stride + work.head * array.head_stride +
         row * array.row_stride;
}

// The level-2 arrays of a problem of two levels do not exist: their maps are read outside, where everything is zero.
__device__ __forceinline__ int level_2_batch(const BackwardParameters& p, const BackwardWork& work) {
  return p.levels > 2 ? work.batch : p.batch;
}

// ---- starts; each .cu file has some of the kernels ----

template <class T, int width, bool coarse, bool deep>
void start_backward_narrow(const BackwardParameters& parameters, const Device& device);
template <class T, bool coarse, bool deep>
void start_backward_wide(const BackwardParameters& parameters, const Device& device);

}  // namespace hkt::kernels::cuda::sm90
