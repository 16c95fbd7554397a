// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: what products are made of and where they go, in shared memory and registers.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

// ---- shared memory ----

__device__ __forceinline__ void load_4(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_2(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void store_4(std::uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
// Blocks of 8 x 8 elements; lane 8i + r has the address of row r of block i.
__device__ __forceinline__ void store_blocks(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                             std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_blocks(std::uint32_t to, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void load_blocks(std::uint32_t* to, std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
// Computed anew each time: keeping all of these addresses in registers would be dearer.
__device__ __forceinline__ std::uint32_t flip(std::uint32_t address, std::uint32_t bits) {
  std::uint32_t result;
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(bits));
  return result;
}

// What is computed from the result is computed anew each time.
__device__ __forceinline__ int again(int value) {
  int result;
  asm volatile("mov.b32 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}

// The accumulator of a transposed product or of one over queries, as it lies in shared or global memory.
template <int count>
__device__ __forceinline__ void store_sums(std::uint32_t to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    store_4(to + i * threads * 16, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

__device__ __forceinline__ void add_4(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// The same, added to what lies in global memory.
template <int count>
__device__ __forceinline__ void add_registers(float* to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    add_4(to + i * threads * 4, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

// ---- products ----

// Nothing is known of these any more: a product that starts from zero will write them.
template <int count>
__device__ __forceinline__ void release(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "=f"(values[i]));
}

// The same operand, with another distance between groups of eight rows.
__device__ __forceinline__ std::uint64_t with_stride(std::uint64_t operand, std::uint32_t bytes) {
  return (operand & ~(0x3fffull << 32)) | (std::uint64_t(bytes >> 4) << 32);
}

// Level-2 keys of a warp as left operand of products over `columns` of their columns: eight rows from `from` on, the
// first of row_bytes. Rows r and r + 8 of the operand are the same key, so it is made of half as many registers: two
// for 16 columns.
template <int row_bytes, int columns>
__device__ __forceinline__ void load_level_2_keys(std::uint32_t (&fragment)[columns / 8], std::uint32_t from,
                                                  int lane) {
  const int row = lane % 8;
  const int swizzle = row_bytes == 128 ? row : row / 2;
#pragma unroll
  for (int i = 0; i < columns / 32; ++i)
    load_blocks(fragment + 4 * i, from + row * row_bytes + ((4 * i + lane / 8) ^ swizzle) * 16);
}

// Scores of level-2 keys and the 16 queries at `q`, over the columns of one panel.
template <class T, int count>
__device__ __forceinline__ void start_level_2(float (&scores)[8], const std::uint32_t (&fragment)[count],
                                              std::uint64_t q, bool accumulate) {
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const std::uint32_t a[4] = {fragment[2 * i], fragment[2 * i], fragment[2 * i + 1], fragment[2 * i + 1]};
    Product<T, 16>::run(scores, a, q + 2 * i, accumulate || i > 0);
  }
}

// keys · queries^T over `width` columns, in panels of 64 columns.
template <class T, int width, int key_panel, int query_panel, int count>
__device__ __forceinline__ void start_product(float (&scores)[count], std::uint64_t keys, std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < width / 16; ++i)
    Product<T, count * 2>::run(scores, keys + i / 4 * (key_panel / 16) + i % 4 * 2,
                               queries + i / 4 * (query_panel / 16) + i % 4 * 2, i > 0);
}

// sums += matrix · queries, the matrix in registers, 64 queries in rows of row_bytes.
template <class T, int row_bytes, int count>
__device__ __forceinline__ void start_sum(float (&sums)[count], const std::uint32_t (&matrix)[16],
                                          std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < 4; ++i) Product<T, count * 2, false, true>::run(sums, matrix + 4 * i, queries + i * row_bytes, 1);
}

}  // namespace hkt::kernels::cuda::sm90
