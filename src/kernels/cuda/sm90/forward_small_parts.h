// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths up to 64: what the warp that loads queries tells each consumer about its part of an item.
// Finding it out takes several divisions, one after another; a consumer that did so would keep the tensor cores waiting.
#pragma once

#include "forward_small_layout.h"

namespace hkt::kernels::cuda::sm90 {

// The 128 rows of a consumer.
struct Part {
  Item item;
  int first_row;
};

// How many tiles of keys they see, how many more the item has, and what scores of levels 0, 1 and 2 are multiplied by.
struct PartWork {
  int tiles;  // negative: there are no more items
  int skipped;
  float coefficients[3];
};

__device__ __forceinline__ void write_part(std::uint32_t to, const Part& part, const PartWork& work) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(part.first_row), "r"(part.item.length),
               "r"(part.item.head), "r"(part.item.batch)
               : "memory");
  asm volatile("st.shared.v2.b32 [%0 + 16], {%1, %2};" ::"r"(to), "r"(work.tiles), "r"(work.skipped) : "memory");
  asm volatile("st.shared.v2.f32 [%0 + 24], {%1, %2};" ::"r"(to), "f"(work.coefficients[0]), "f"(work.coefficients[1])
               : "memory");
  asm volatile("st.shared.f32 [%0 + 32], %1;" ::"r"(to), "f"(work.coefficients[2]) : "memory");
}

// Read anew each time, rather than kept in registers.
__device__ __forceinline__ Part read_part(std::uint32_t from) {
  Part part{};
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(part.first_row), "=r"(part.item.length), "=r"(part.item.head), "=r"(part.item.batch)
               : "r"(from)
               : "memory");
  return part;
}
// All threads of the warp must call this.
__device__ __forceinline__ int read_tiles(std::uint32_t from) {
  int tiles;
  asm volatile("ld.shared.b32 %0, [%1 + 16];" : "=r"(tiles) : "r"(from) : "memory");
  return uniform(tiles);
}
__device__ __forceinline__ int read_skipped(std::uint32_t from) {
  int skipped;
  asm volatile("ld.shared.b32 %0, [%1 + 20];" : "=r"(skipped) : "r"(from) : "memory");
  return uniform(skipped);
}
__device__ __forceinline__ float read_coefficient(std::uint32_t from, int level) {
  float coefficient;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(coefficient) : "r"(from + 24 + level * 4) : "memory");
  return coefficient;
}

}  // namespace hkt::kernels::cuda::sm90
