// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: products, from operands in shared memory and registers to sums and rows of gradients.
#pragma once

#include "common/mma.h"
#include "sm90/backward.h"

namespace hkt::kernels::cuda::sm90 {

// ---- registers ----

// The value, by an instruction that the compiler knows nothing of. What is computed from it is computed here, every time,
// and not once for all steps, for which there are no registers.
__device__ __forceinline__ int rematerialize(int value) {
  int result;
  asm volatile("mov.b32 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}
// Likewise address ^ bits.
__device__ __forceinline__ std::uint32_t rematerialize_xor(std::uint32_t address, std::uint32_t bits) {
  std::uint32_t result;
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(bits));
  return result;
}

// A kernel's storage, by an address that is such a value.
template <class Storage>
__device__ __forceinline__ Storage& rematerialize_storage(Storage& storage) {
  const int address = rematerialize(static_cast<int>(shared_address(&storage)));
  return *reinterpret_cast<Storage*>(static_cast<std::uintptr_t>(static_cast<std::uint32_t>(address)));
}

// ---- products ----

// The same operand, with another distance between groups of eight rows.
__device__ __forceinline__ std::uint64_t with_stride(std::uint64_t operand, std::uint32_t bytes) {
  return (operand & ~(0x3fffull << 32)) | (std::uint64_t(bytes >> 4) << 32);
}

// Level-2 keys of a warp as left operand of products over `columns` of their columns: eight rows from `from` on, of
// row_bytes. Rows r and r + 8 of the operand are the same key, so it is made of half as many registers: two for 16
// columns.
template <int row_bytes, int columns>
__device__ __forceinline__ void load_level_2_keys(std::uint32_t (&fragment)[columns / 8], std::uint32_t from,
                                                  int lane) {
  const int row = lane % 8;
  const int swizzle = row_bytes == 128 ? row : row / 2;
#pragma unroll
  for (int i = 0; i < columns / 32; ++i)
    ldmatrix_x4(fragment + 4 * i, from + row * row_bytes + ((4 * i + lane / 8) ^ swizzle) * 16);
}

// Scores of level-2 keys and the 16 queries at `q`, over the columns of one panel.
template <class T, int count>
__device__ __forceinline__ void start_level_2(float (&scores)[8], const std::uint32_t (&fragment)[count],
                                              std::uint64_t q, bool accumulate) {
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const std::uint32_t a[4] = {fragment[2 * i], fragment[2 * i], fragment[2 * i + 1], fragment[2 * i + 1]};
    Wgmma<T, 16>::run(scores, a, q + 2 * i, accumulate || i > 0);
  }
}

// keys · queries^T over `width` columns, in panels of 64 columns and so many bytes; or += with `accumulate`.
template <class T, int width, int key_panel, int query_panel, int count>
__device__ __forceinline__ void start_product(float (&scores)[count], std::uint64_t keys, std::uint64_t queries,
                                              bool accumulate = false) {
#pragma unroll
  for (int i = 0; i < width / 16; ++i)
    Wgmma<T, count * 2>::run(scores, keys + i / 4 * descriptor_offset(key_panel) + i % 4 * 2,
                             queries + i / 4 * descriptor_offset(query_panel) + i % 4 * 2, accumulate || i > 0);
}

// sums += matrix · queries. The matrix is in registers, four for 16 queries, which lie in rows of row_bytes.
template <class T, int row_bytes, int count, int registers>
__device__ __forceinline__ void start_sum(float (&sums)[count], const std::uint32_t (&matrix)[registers],
                                          std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < registers / 4; ++i)
    Wgmma<T, count * 2, false, true>::run(sums, matrix + 4 * i, queries + i * descriptor_offset(16 * row_bytes), 1);
}

// ---- query sums: accumulators of transposed products or of products over queries, each thread's four by four ----

template <int count>
__device__ __forceinline__ void store_sums(std::uint32_t to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    st_shared_f32x4(to + i * threads * 16, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

__device__ __forceinline__ void red_add_f32x4(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// As store_sums, added to what lies in global memory.
template <int count>
__device__ __forceinline__ void add_sums(float* to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    red_add_f32x4(to + i * threads * 4, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

// ---- gradients of keys and values: accumulators whose rows are those of an array ----

// Half h of an accumulator's rows to the array's row; the thread has columns 2c, 2c + 1 of each eight.
template <class T, int count>
__device__ __forceinline__ void write_row(T* row, const float (&sums)[count], int h, int c, int width, float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; ++j)
    if (8 * j < width)
      *reinterpret_cast<std::uint32_t*>(row + 8 * j + 2 * c) =
          pack<T>(factor * sums[4 * j + 2 * h], factor * sums[4 * j + 2 * h + 1]);
}

// As write_row, 16 bytes at a time: the four lanes of a row exchange what they have of four blocks of eight columns, so
// that each has one of them. Nothing is written from column `width` on.
template <class T, int count>
__device__ __forceinline__ void write_row_x4(T* row, const float (&sums)[count], int h, int c, int width,
                                             float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; j += 4) {
    std::uint32_t x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      x[k] = pack<T>(factor * sums[4 * (j + k) + 2 * h], factor * sums[4 * (j + k) + 2 * h + 1]);
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
      const bool upper = (c & bit) != 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if ((k & bit) != 0) continue;
        const std::uint32_t other = __shfl_xor_sync(~0u, upper ? x[k] : x[k + bit], bit);
        (upper ? x[k] : x[k + bit]) = other;
      }
    }
    if (8 * (j + c) < width) *reinterpret_cast<uint4*>(row + 8 * (j + c)) = make_uint4(x[0], x[1], x[2], x[3]);
  }
}

// Zeros for the rows of the CTA's keys.
template <class T>
__device__ __forceinline__ void clear_rows(const Array& array, const BackwardParameters& p, const BackwardWork& work,
                                           int level) {
  const int chunks = p.width / 8;
  const int first = work.key_tile * (backward_keys >> level);
  const int rows = min(backward_keys >> level, level_rows(p.length, level) - first);
  for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x)
    *reinterpret_cast<uint4*>(row_of<T>(array, work, first + i / chunks) + i % chunks * 8) = make_uint4(0, 0, 0, 0);
}
// If there are no queries for them.
template <class T>
__device__ __forceinline__ void clear_key_gradients(const BackwardParameters& p, const BackwardWork& work) {
  clear_rows<T>(p.grad_v, p, work, 0);
  for (int level = 0; level < p.levels; ++level) clear_rows<T>(p.grad_k[level], p, work, level);
}

}  // namespace hkt::kernels::cuda::sm90
