// SPDX-License-Identifier: Apache-2.0
// Matrix fragments of a warp: ldmatrix, stmatrix and mma.sync.
#pragma once

#include <cstdint>

#include "common/element.h"

namespace hkt::kernels::cuda {

// Four 8 × 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t* to, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t* to, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
// From Hopper on.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                            std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
__device__ __forceinline__ void stmatrix_x2(std::uint32_t address, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

// d[16 × 8] += a[16 × 16] · b[16 × 8]; with `is_first`, d = a · b.
#define HKT_MMA(element, name)                                                                               \
  template <>                                                                                                \
  __device__ __forceinline__ void mma<element>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, \
                                               std::uint32_t b1, bool is_first) {                            \
    if (is_first)                                                                                            \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                             \
          ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"                                   \
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                   \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));                        \
    else                                                                                                     \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                             \
          ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                       \
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                   \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                   \
  }
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                    bool is_first = false);
HKT_MMA(bfloat16, "bf16")
HKT_MMA(float16, "f16")
#undef HKT_MMA

}  // namespace hkt::kernels::cuda
