// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: what the host gives a kernel, and the tile scheduler with which each warp finds its CTA's work.
#pragma once

#include <cuda.h>

#include "kernels/attention.h"
#include "sm90/wgmma.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int key_rows = 128;         // of a tile of keys
inline constexpr int all_outside = 1 << 29;  // a shift by more than any number of rows

// Query rows of an item of work, by padded width (32, 64 or 128).
constexpr int query_tile_rows(int width) { return width > 64 ? 128 : 256; }

// 128 query rows (a wide tile, half of a narrow one) are kept as two blocks of 64, the even rows and the odd ones. Place 32s
// + i of block e is row 4i + 2s + e, so that the places 32s + i of both blocks share row 2i + s of level 1 and row i of
// level 2. Rows are positions: tiles lie at multiples of their size, wherever the queries start. Hence one tensor map for each
// remainder of rows: q0[x] sees rows 4i + x of the array of queries, q1[s] rows 2i + s; QueryRows says where positions lie.
struct ForwardParameters {
  CUtensorMap q0[4];
  CUtensorMap q1[2];
  CUtensorMap q2;
  CUtensorMap k0;
  CUtensorMap v;

  // Not read or written by TMA (the values are where a sequence ends: see copy_last_values).
  Array values;
  Array k1;
  Array k2;
  Array out;
  const float* weights;
  const std::int64_t* lengths;
  float* lse;
  bool at_ends;  // queries are the last of each sequence's `lengths`, and keys beyond these may be anything

  float scale;  // times log2(e)
  int levels;
  int width;
  int heads;
  int heads_per_key_head;
  int length;
  int queries;
  int start;  // the first query's position, unless they are at the ends
  int rows1;  // of keys of level 1
  int rows2;  // of level 2; 0 if there is none
  bool causal;

  // For the tile scheduler.
  int first_tile;
  int tiles;      // of query rows of a sequence
  int sequences;  // batch · heads: here each head has its own
  int group;      // sequences of a group

  Array deep_q[max_levels - 3];  // levels from 3 on
  int deep_q_rows[max_levels - 3];
  Array deep_k[max_levels - 3];
  float* deep_sums;  // see forward_deep.h
};

// The same for problems whose queries are all positions of their sequences, not some from a `start` on or the last ones: what is
// computed for those once for each item made D = 128 up to 4 % slower. Functions here take either.
struct AllQueriesParameters : ForwardParameters {};

template <class Parameters>
inline constexpr bool has_all_queries = std::is_same_v<Parameters, AllQueriesParameters>;

// Bytes of the sums of levels from 3 on, of 128 x 128 scores.
inline constexpr int deep_tile_bytes = 16 * 16 * 4;

// Launch the kernel for elements T, widths up to `width` (32 or 64; wide: 128) and one level, up to three or up to
// max_levels. Each .cu file in instantiations/ has some of them.
template <class T, int width, int levels>
void launch_forward_narrow(const ForwardParameters& parameters, int ctas, void* stream);
template <class T, int levels>
void launch_forward_wide(const ForwardParameters& parameters, int ctas, void* stream);

// Tells the compiler that all threads of the warp have the same value, so that it and what follows from it can be kept
// once for the warp and not in each thread's registers. All threads of the warp must call this.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(~0u, value, 0); }

// A tile of query rows of one head.
struct Item {
  int tile;  // it begins at a multiple of its size
  int head;
  int batch;
  int length;     // valid positions of the sequence
  int ping_pong;  // alternates between 0 and 1 over a CTA's items of a group
};

template <class Parameters>
__device__ __forceinline__ bool are_at_ends(const Parameters& p) {
  if constexpr (has_all_queries<Parameters>) return false;
  return p.at_ends;
}

// The items of a CTA. The grid is persistent: a CTA for each SM. Items are dealt in groups of sequences, so that the keys and
// values of those in work stay in the L2 cache. The items of a group are dealt to the CTAs in snake order: forth in one round,
// back in the next. With a causal mask they are ordered by tiles, the last first: it sees most keys, and the lighter ones
// even out the load. (At the ends of caches the last tile is often empty, and the others see nearly as many keys: the first one
// is first.) The CTA that is dealt the first item differs from group to group, for the same reason.
struct TileScheduler {
  int group = 0;
  int round = -1;

  // Moves on to the CTA's next item; false if there is none.
  template <class Parameters>
  __device__ __forceinline__ bool next(const Parameters& p) {
    for (;;) {
      ++round;
      const int items = group_items(p);
      if (items == 0) return false;
      if (item_index(p) < items) return true;
      ++group;
      round = -1;
    }
  }

  // All threads of the warp must call this.
  template <class Parameters>
  __device__ __forceinline__ Item item(const Parameters& p) const {
    const unsigned index = item_index(p);
    const unsigned first = group * p.group;
    unsigned sequence = first + index / p.tiles;
    unsigned tile = index % p.tiles;
    if (p.causal) {
      const unsigned size = min(p.group, p.sequences - static_cast<int>(first));
      sequence = first + index % size;
      tile = are_at_ends(p) ? index / size : p.tiles - 1 - index / size;
    }
    Item item;
    item.batch = static_cast<int>(sequence / p.heads);
    item.head = static_cast<int>(sequence % p.heads);
    item.ping_pong = round & 1;
    item.length = p.length;
    if (p.lengths != nullptr) {
      const std::int64_t length = __ldg(reinterpret_cast<const long long*>(p.lengths) + item.batch);
      item.length = warp_uniform(length < 0 ? 0 : length < p.length ? static_cast<int>(length) : p.length);
    }
    item.tile = static_cast<int>(tile);
    if constexpr (!has_all_queries<Parameters>)
      item.tile += p.at_ends ? (item.length - p.queries) >> (p.width > 64 ? 7 : 8) : p.first_tile;
    return item;
  }

  // The same, computed anew: nothing is kept in registers since the first time.
  template <class Parameters>
  __device__ __forceinline__ Item item_again(const Parameters& p) const {
    TileScheduler copy = *this;
    asm volatile("" : "+r"(copy.group), "+r"(copy.round));
    return copy.item(p);
  }

 private:
  // Items of the group; 0 after the last group.
  __device__ __forceinline__ int group_items(const ForwardParameters& p) const {
    return max(0, min(p.group, p.sequences - group * p.group)) * p.tiles;
  }
  // The CTA's item of the group and round: it may be beyond the last one.
  __device__ __forceinline__ int item_index(const ForwardParameters& p) const {
    const unsigned ctas = gridDim.x;
    const unsigned first = static_cast<unsigned>(group * p.group * p.tiles) % ctas;
    const unsigned position = blockIdx.x >= first ? blockIdx.x - first : blockIdx.x + ctas - first;
    return static_cast<int>(round * ctas + (round % 2 == 0 ? position : ctas - 1 - position));
  }
};

// The first query's position. At the ends it is negative if there are more queries than positions.
template <class Parameters>
__device__ __forceinline__ int first_query(const Parameters& p, const Item& item) {
  if constexpr (has_all_queries<Parameters>) return 0;
  return p.at_ends ? item.length - p.queries : p.start;
}
template <class Parameters>
__device__ __forceinline__ int query_count(const Parameters& p) {
  return has_all_queries<Parameters> ? p.length : p.queries;
}

// Tiles of keys that the 128 query rows from `first_row` on see. Only the last of them can need a mask.
template <class Parameters>
__device__ __forceinline__ int key_tiles(const Parameters& p, const Item& item, int first_row) {
  if (first_row >= item.length) return 0;
  if constexpr (!has_all_queries<Parameters>) {
    const int start = first_query(p, item);
    if (first_row < 0 || first_row >= start + p.queries || first_row + 128 <= start) return 0;
  }
  const int keys = p.causal ? min(item.length, first_row + 128) : item.length;
  return (keys + key_rows - 1) / key_rows;
}

// Whether some of those rows do not see all of that many tiles of keys.
__device__ __forceinline__ bool needs_mask(const ForwardParameters& p, const Item& item, int first_row, int tiles) {
  return tiles * key_rows > (p.causal ? min(item.length, first_row + 1) : item.length);
}

// The last key that a row sees.
__device__ __forceinline__ int last_key(const ForwardParameters& p, const Item& item, int row) {
  return p.causal ? min(item.length - 1, row) : item.length - 1;
}

// Where the queries at positions step · i + remainder of a level lie, step being a power of two, if the level's first query is
// at position `start`: number i - shift of the map that sees rows step · i + map. Outside of the map are zeros.
struct QueryRows {
  int map, shift;
};
template <int step>
__device__ __forceinline__ QueryRows query_rows_of(int start, int remainder) {
  const int map = (remainder - start) & (step - 1);
  return {map, (start + map - remainder) / step};
}
__device__ __forceinline__ int shift_of_level_2(const ForwardParameters& p, int start) {
  return p.rows2 > 0 ? start >> 2 : all_outside;
}

// What the score of a level is multiplied by.
__device__ __forceinline__ float coefficient(const ForwardParameters& p, const Item& item, int level) {
  if (level >= p.levels) return 0;
  return p.scale * __ldg(p.weights + static_cast<std::int64_t>(item.head) * p.levels + level);
}

// The head of keys and values that the item's head reads.
__device__ __forceinline__ int key_head(const ForwardParameters& p, const Item& item) {
  return static_cast<int>(static_cast<unsigned>(item.head) / p.heads_per_key_head);
}

// The first row of a head of the item's sequence in an array of 16-bit elements.
__device__ __forceinline__ const char* head_data(const Array& array, const Item& item, int head) {
  return static_cast<const char*>(array.data) + 2 * (item.batch * array.batch_stride + head * array.head_stride);
}

// ---- roles ----

// Warpgroup 0 loads, the next two are consumers; the wide kernel has a fourth for coarse scores.
inline constexpr int producer_warpgroup = 0;
inline constexpr int first_consumer_warpgroup = 1;
inline constexpr int consumers = 2;

// The producers' warps: one loads keys and values of level 0, one queries, two copy coarse keys.
inline constexpr int key_warp = 0;
inline constexpr int query_warp = 1;
inline constexpr int copy_threads = 64;

// Of an SM. What setmaxnreg gives the warpgroups of a CTA must not be more together.
inline constexpr int sm_registers = 65536;
inline constexpr int max_shared_bytes = 227 * 1024;

}  // namespace hkt::kernels::cuda::sm90
