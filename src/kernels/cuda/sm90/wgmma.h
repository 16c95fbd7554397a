// SPDX-License-Identifier: Apache-2.0
// wgmma, the products of a warpgroup: 64 rows, float32 accumulators; and setmaxnreg, which gives its registers.
#pragma once

#include <cstdint>

#include "common/element.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int warpgroup_threads = 128;

template <int registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Operands in shared memory are described by an address, a swizzle (128, 64 or 32 bytes: the length of a row of the tile)
// and, for transposed operands wider than a row, the distance of the next column block.
template <int swizzle>
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t leading_bytes = 16) {
  constexpr std::uint64_t kind = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  constexpr std::uint64_t stride = swizzle * 8;  // eight rows
  return ((address & 0x3ffff) >> 4) | (std::uint64_t(leading_bytes >> 4) << 16) | ((stride >> 4) << 32) | (kind << 62);
}

// What moves a descriptor on by so many bytes: addresses are counted in 16.
__host__ __device__ constexpr int descriptor_offset(int bytes) { return bytes / 16; }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// The compiler must not move accesses to registers that a product in flight reads or writes.
template <int count>
__device__ __forceinline__ void fence_operand(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int count>
__device__ __forceinline__ void fence_operand(std::uint32_t (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

// The compiler may forget what these held: a product that starts from zero will write them.
template <int count>
__device__ __forceinline__ void mark_undefined(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "=f"(values[i]));
}

// Register lists of the instruction, for N = 16, 32, 64, 128.
#define HKT_R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define HKT_R16 HKT_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define HKT_R32 HKT_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HKT_R64                                                                                                      \
  HKT_R32                                                                                                            \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59" \
  ",%60,%61,%62,%63"
#define HKT_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HKT_D8(i) HKT_D4(i), HKT_D4(i + 4)
#define HKT_D16(i) HKT_D8(i), HKT_D8(i + 8)
#define HKT_D32(i) HKT_D16(i), HKT_D16(i + 16)
#define HKT_D64(i) HKT_D32(i), HKT_D32(i + 32)

// d = a · b, or d += a · b with `accumulate`; k = 16. `a` and `b` K-major, or the other way with transpose_a, transpose_b.
template <class T, int N, bool transpose_a = false, bool transpose_b = false>
struct Wgmma;

#define HKT_WGMMA(TYPE, NAME, N, COUNT, A0, A1, A2, A3, A4, A5)                                                       \
  template <bool transpose_a, bool transpose_b>                                                                       \
  struct Wgmma<TYPE, N, transpose_a, transpose_b> {                                                                   \
    static __device__ __forceinline__ void run(float (&d)[COUNT], std::uint64_t a, std::uint64_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" A2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N               \
                   "k16.f32." NAME "." NAME " {" HKT_R##COUNT "}, %" A0 ", %" A1 ", p, 1, 1, %" A3 ", %" A4 ";\n}\n"  \
                   : HKT_D##COUNT(0)                                                                                  \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(int(transpose_a)), "n"(int(transpose_b)));                  \
    }                                                                                                                 \
    /* The same with `a` in registers, as four pairs. */                                                              \
    static __device__ __forceinline__ void run(float (&d)[COUNT], const std::uint32_t* a, std::uint64_t b,            \
                                               int accumulate) {                                                      \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" A5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N               \
                   "k16.f32." NAME "." NAME " {" HKT_R##COUNT "}, {%" A0 ",%" A1 ",%" A2 ",%" A3 "}, %" A4            \
                                                              ", p, 1, 1, %" HKT_NEXT_##COUNT ";\n}\n"                \
                   : HKT_D##COUNT(0)                                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(int(transpose_b)));     \
    }                                                                                                                 \
  };
#define HKT_NEXT_8 "14"
#define HKT_NEXT_16 "22"
#define HKT_NEXT_32 "38"
#define HKT_NEXT_64 "70"
#define HKT_WGMMAS(TYPE, NAME)                                      \
  HKT_WGMMA(TYPE, NAME, 16, 8, "8", "9", "10", "11", "12", "13")    \
  HKT_WGMMA(TYPE, NAME, 32, 16, "16", "17", "18", "19", "20", "21") \
  HKT_WGMMA(TYPE, NAME, 64, 32, "32", "33", "34", "35", "36", "37") \
  HKT_WGMMA(TYPE, NAME, 128, 64, "64", "65", "66", "67", "68", "69")
HKT_WGMMAS(bfloat16, "bf16")
HKT_WGMMAS(float16, "f16")

}  // namespace hkt::kernels::cuda::sm90
