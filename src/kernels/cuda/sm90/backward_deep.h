// Backward on Hopper, levels from 3 on: the memory that a running block has for them, and their rows.
//
// A block has 128 keys. Two ideas keep these levels from costing much:
// One product for all levels from 4 on, whose rows are 15 of 128 keys and 15 of 128 queries (a unit): see deep.h.
// No product in a step. Products that small would only wait for memory and for each other. So all scores of a block are
//   made before its first step (backward_deep_scores.h), and the gradients of keys and queries after its last one
//   (backward_deep_gradients.h), many at a time. A step only reads the sums of scores of all these levels at the
//   resolution of level 3, and leaves the gradients of these sums in their place.
//
// The place is a slot in global memory: 16 x 8 floats for each tile of 64 queries, so 8 bytes for each query of a head.
// There are as many slots as blocks can run at the same time. A block claims one when it starts and gives it back when it
// ends; it reads nothing there that it has not written itself. All slots are free when the kernel starts, because the
// marks of those that are taken are among what is cleared before each launch, whatever became of the launch before.
// For widths above 64 the number of the slot is also that of another one, from two levels on: see backward_128_late.h.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

// ---- slots ----

inline constexpr int deep_tile_size = 16 * 8;

// Where the number of key k and query q of level 3 lies in a tile.
__device__ __forceinline__ int deep_place(int k, int q) { return k * 8 + q % 4 * 2 + q / 4; }

// One thread: finds a slot that no running block has. There is one for each multiprocessor, or for each block if these
// are fewer, and no multiprocessor runs two blocks: each takes more than half of its shared memory. So one is free.
__device__ __forceinline__ int claim_deep_slot(const BackwardParameters& p) {
  unsigned processor;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
  int slot = static_cast<int>(processor % static_cast<unsigned>(p.deep_slots));
  while (atomicCAS(p.deep_taken + slot, 0, 1) != 0) slot = slot + 1 == p.deep_slots ? 0 : slot + 1;
  __threadfence();
  return slot;
}
__device__ __forceinline__ void give_deep_slot_back(const BackwardParameters& p, int slot) {
  __threadfence();
  atomicExch(p.deep_taken + slot, 0);
}
// `place`: where in shared memory its number is.
__device__ __forceinline__ int deep_slot_number(std::uint32_t place) {
  int slot;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(slot) : "r"(place) : "memory");
  return slot;
}
__device__ __forceinline__ float* deep_slot(const BackwardParameters& p, std::uint32_t place) {
  return p.deep_sums + static_cast<std::int64_t>(deep_slot_number(place)) * p.query_tiles * deep_tile_size;
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
