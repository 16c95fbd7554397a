// SPDX-License-Identifier: Apache-2.0
// Ampere's instructions: loads of matrix fragments, products of a warp.
#pragma once

#include <cstdint>

#include "../async_copy.h"
#include "../element.h"

namespace hkt::kernels::cuda::sm80 {

// Four 8 × 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Numbers in shared memory.
__device__ __forceinline__ void store_2(std::uint32_t to, std::uint32_t value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<unsigned short>(value)) : "memory");
}
__device__ __forceinline__ void store_4(std::uint32_t to, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_float(std::uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ __forceinline__ float2 load_floats(std::uint32_t from) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ void load_row(float (&to)[2], std::uint32_t from) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_row(float (&to)[4], std::uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ uint4 load_16(std::uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

// Sums in float32 of a 16 × 8 block are kept as a warp's fragment lies in its registers, so that an addition touches whole
// lines of memory: with Hopper's additions of four numbers lane by lane, before it number by number. Where number i of a
// lane lies:
inline constexpr int fragment_floats = 128;
__device__ __forceinline__ int place_in_fragment(int lane, int i) {
#if __CUDA_ARCH__ >= 900
  return 4 * lane + i;
#else
  return 32 * i + lane;
#endif
}
__device__ __forceinline__ void add_fragment(float* fragment, int lane, const float (&numbers)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(fragment + place_in_fragment(lane, 0)),
               "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]), "f"(numbers[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) atomicAdd(fragment + place_in_fragment(lane, i), numbers[i]);
#endif
}
__device__ __forceinline__ void store_fragment(float* fragment, int lane, const float (&numbers)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(fragment + place_in_fragment(lane, 0)),
               "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]), "f"(numbers[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(fragment + place_in_fragment(lane, i)), "f"(numbers[i])
                 : "memory");
#endif
}
// Eight columns of rows r and r + 8 of a fragment, which four lanes have. For sums that nobody adds to any more.
__device__ __forceinline__ void read_rows(float (&rows)[2][8], const float* fragment, int r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if __CUDA_ARCH__ >= 900
    const float4 four = __ldg(reinterpret_cast<const float4*>(fragment + place_in_fragment(4 * r + i, 0)));
    rows[0][2 * i] = four.x, rows[0][2 * i + 1] = four.y, rows[1][2 * i] = four.z, rows[1][2 * i + 1] = four.w;
#else
    const float4 four = __ldg(reinterpret_cast<const float4*>(fragment + place_in_fragment(4 * r, i)));
    float* const row = rows[i / 2] + i % 2;
    row[0] = four.x, row[2] = four.y, row[4] = four.z, row[6] = four.w;
#endif
  }
}
// What this thread has added.
__device__ __forceinline__ void read_added(float (&numbers)[4], const float* fragment, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];"
                 : "=f"(numbers[i])
                 : "l"(fragment + place_in_fragment(lane, i))
                 : "memory");
}
// Adds two neighbours to global memory.
__device__ __forceinline__ void add_pair(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
#else
  atomicAdd(to, x);
  atomicAdd(to + 1, y);
#endif
}

// d[16 × 8] += a[16 × 16] · b[16 × 8]; with `is_first`, d = a · b.
#define HKT_MULTIPLY(element, name)                                                                               \
  template <>                                                                                                     \
  __device__ __forceinline__ void multiply<element>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, \
                                                    std::uint32_t b1, bool is_first) {                            \
    if (is_first)                                                                                                 \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                                  \
          ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"                                        \
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));                             \
    else                                                                                                          \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                                  \
          ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                            \
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                        \
  }
template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                         bool is_first = false);
HKT_MULTIPLY(bfloat16, "bf16")
HKT_MULTIPLY(float16, "f16")
#undef HKT_MULTIPLY

}  // namespace hkt::kernels::cuda::sm80
