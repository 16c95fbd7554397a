// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths up to 64: where things lie in shared memory.
#pragma once

#include "forward_common.h"
#include "forward_deep_sums.h"

namespace hkt::kernels::cuda::sm90 {

template <int width, int levels>
struct SmallLayout {
  static constexpr bool deep = levels > 3;
  // Which of the two kinds of consumers the kernel has: see forward_small_summed.h and forward_small_joined.h.
  static constexpr bool summed = width == 64 && levels > 1;
  static constexpr int stages = 3;
  static constexpr int row = width * 2;
  static constexpr int block = 64 * row;  // one product's rows of queries

  static constexpr int q0 = 0;  // each consumer's even and odd rows
  static constexpr int q1 = q0 + 4 * block;
  static constexpr int q2 = q1 + (levels > 1 ? 2 * block : 0);

  static constexpr int keys = q2 + (levels > 1 ? 2 * block : 0);
  static constexpr int key1 = key_rows * row;  // in a stage of keys
  static constexpr int key2 = key1 + key_rows / 2 * row;
  static constexpr int key2_places = summed ? key_rows / 2 : key_rows / 4;  // summed: each row lies twice
  static constexpr int key_stage = levels > 1 ? key2 + key2_places* row : key1;

  static constexpr int values = keys + stages * key_stage;
  static constexpr int value_stage = key_rows * row;

  static constexpr int deep_sums = values + stages * value_stage;  // a warp's, of a tile: see forward_deep.h

  static constexpr int full_q = deep_sums + (deep ? 8 * deep_warp_bytes : 0);  // barriers, of 8 bytes
  static constexpr int empty_q = full_q + 2 * 8;
  static constexpr int full_k = empty_q + 2 * 8;
  static constexpr int empty_k = full_k + stages * 8;
  static constexpr int full_v = empty_k + stages * 8;
  static constexpr int empty_v = full_v + stages * 8;
  // Two parts of items for each consumer: see forward_small_parts.h.
  static constexpr int parts = (empty_v + stages * 8 + 15) / 16 * 16;
  static constexpr int part = 48;
  static constexpr int end = parts + 2 * 2 * part;
  static constexpr int bytes = end + 1024;  // the start is rounded up
  static_assert(bytes <= 227 * 1024);
};

// Which half of the item's 256 rows a consumer has. With a causal mask the second half sees one tile of keys more; the
// consumers have it by turns, so that neither has more to do than the other. The one that is done first goes on with the
// next item.
__device__ __forceinline__ int consumer_half(const ForwardParameters& p, const Item& item, int consumer) {
  return p.causal ? consumer ^ item.turn : consumer;
}

// Tiles of keys that an item needs: those of the half that needs more.
__device__ __forceinline__ int small_key_tiles(const ForwardParameters& p, const Item& item) {
  return max(key_tiles(p, item, item.tile * 256), key_tiles(p, item, item.tile * 256 + 128));
}

}  // namespace hkt::kernels::cuda::sm90
