// SPDX-License-Identifier: Apache-2.0
// ld.shared and st.shared, by 32-bit addresses.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda {

__device__ __forceinline__ std::uint32_t ld_shared_b32(std::uint32_t from) {
  std::uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint4 ld_shared_b32x4(std::uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ float ld_shared_f32(std::uint32_t from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float2 ld_shared_f32x2(std::uint32_t from) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float4 ld_shared_f32x4(std::uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
// To neighbouring registers.
__device__ __forceinline__ void ld_shared_f32x2(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void ld_shared_f32x4(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void st_shared_b16(std::uint32_t to, std::uint32_t value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<unsigned short>(value)) : "memory");
}
__device__ __forceinline__ void st_shared_b32(std::uint32_t to, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void st_shared_b32x2(std::uint32_t to, std::uint32_t a, std::uint32_t b) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void st_shared_b32x4(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                                std::uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void st_shared_f32(std::uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ __forceinline__ void st_shared_f32x2(std::uint32_t to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ void st_shared_f32x4(std::uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
__device__ __forceinline__ void st_shared_f32x4(std::uint32_t to, float4 value) {
  st_shared_f32x4(to, value.x, value.y, value.z, value.w);
}

}  // namespace hkt::kernels::cuda
