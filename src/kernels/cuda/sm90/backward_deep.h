// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, levels from 3 on: the memory that a running block has for them, and their rows.
//
// A block has 128 keys. Two ideas keep these levels from costing much:
// One product for all levels from 4 on, whose rows are 15 of 128 keys and 15 of 128 queries (a unit): see deep.h.
// No product in a step. Products that small would only wait for memory and for each other. So all scores of a block are
//   made before its first step (backward_deep_scores.h), and the gradients of keys and queries after its last one
//   (backward_deep_gradients.h), many at a time. A step only reads the sums of scores of all these levels at the
//   resolution of level 3, and leaves the gradients of these sums in their place.
//
// The place is in the block's slot (backward_slots.h): 16 x 8 floats for each tile of 64 queries, so 8 bytes for each query
// of a head.
#pragma once

#include "backward_slots.h"

namespace hkt::kernels::cuda::sm90 {

// ---- sums of scores and their gradients ----

inline constexpr int deep_tile_size = 16 * 8;

// Where the number of key k and query q of level 3 lies in a tile.
__device__ __forceinline__ int deep_place(int k, int q) { return k * 8 + q % 4 * 2 + q / 4; }

__device__ __forceinline__ float* deep_slot(const BackwardParameters& p, std::uint32_t place) {
  return p.deep_sums + static_cast<std::int64_t>(slot_number(place)) * p.query_tiles * deep_tile_size;
}

// ---- rows of levels from 3 on ----

// A row of each unit: the one at `place`, of 16 of level 3, 8 of level 4, and so on.
struct DeepRow {
  const char* first;  // that of unit 0
  std::int64_t stride;
  std::int64_t next;  // row
  int rows;           // of the level in a unit
  int last;           // row of the level, counted from the first unit's
};
__device__ __forceinline__ DeepRow deep_row(const Array (&arrays)[max_levels - 3], const BackwardParameters& p,
                                            const BackwardWork& work, int place) {
  const int level = deep_level(place);
  if (level >= p.levels) return {nullptr, 0, 0, 1, -1};
  const Array& array = arrays[level - 3];
  const int row = place - first_deep_row(16, level), rows = backward_keys >> level;
  return {reinterpret_cast<const char*>(row_of<std::uint16_t>(array, work, row)), 2 * rows * array.row_stride,
          2 * array.row_stride, rows, ((p.length - 1) >> level) - row};
}
// Columns of the unit's row, or of the one after it if the level has more than one; zeros outside.
template <class Columns>
__device__ __forceinline__ Columns read_deep(const DeepRow& row, int unit, int column, int width, int after = 0) {
  if (unit * row.rows + after > row.last || column >= width || after == row.rows) return {};
  return __ldg(reinterpret_cast<const Columns*>(row.first + unit * row.stride + after * row.next + column * 2));
}

// The units of a block, in the order of its steps.
struct DeepUnits {
  int first;
  int count;
  int rotation;
  __device__ __forceinline__ int operator[](int i) const {
    const int turned = i + rotation;
    return first + (turned >= count ? turned - count : turned);
  }
};
__device__ __forceinline__ DeepUnits deep_units(const BackwardParameters& p, const BackwardWork& work) {
  const int count = (work.steps + 1) / 2;
  return {work.first / 2, count, p.rotate ? work.key_tile % count : 0};
}

}  // namespace hkt::kernels::cuda::sm90
