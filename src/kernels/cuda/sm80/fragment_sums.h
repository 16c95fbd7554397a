// SPDX-License-Identifier: Apache-2.0
// Sums of gradients in global memory, as the fragments of mma.sync lie in registers.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda::sm80 {

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

}  // namespace hkt::kernels::cuda::sm80
