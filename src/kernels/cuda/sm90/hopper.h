// SPDX-License-Identifier: Apache-2.0
// Hopper's own instructions: barriers in shared memory, the copy engine (TMA), warpgroup products (wgmma), register budgets.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "../async_copy.h"
#include "../element.h"

namespace hkt::kernels::cuda::sm90 {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers in shared memory: a count of arrivals, and of bytes that copies still owe ----

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, int bytes) {  // arrives, too
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// A warp arrives through its first lane. In a build to be checked for races (-DHKT_RACECHECK) each lane arrives by itself:
// compute-sanitizer does not see that the others have come as far, because __syncwarp compiles to nothing where they
// surely have.
#ifdef HKT_RACECHECK
inline constexpr bool every_lane_arrives = true;
#else
inline constexpr bool every_lane_arrives = false;
#endif
__device__ __forceinline__ void barrier_init_warps(std::uint32_t barrier, int warps) {
  barrier_init(barrier, every_lane_arrives ? 32 * warps : warps);
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
      "bra AGAIN;\nDONE:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// A place in a ring of stages, and the parity of its barriers.
template <int stages>
struct Ring {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};
// Named barriers of the block: `threads` of them take part.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Makes ordinary writes to shared memory visible to wgmma and the copy engine.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Between what the copy engine does in global memory and what threads tell each other of it. Without `.global` it would
// also wait, as a fence of all memory for the whole GPU does.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

template <int registers>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- the copy engine ----

// A tile of a [batch, heads, rows, width] array: column, row, head, batch of its first element. What lies outside is zero.
__device__ __forceinline__ void load_tile(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier, int column,
                                          int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void load_bytes(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void store_bytes(void* to, std::uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// to[i] += from[i], float32.
__device__ __forceinline__ void add_floats(void* to, std::uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most `pending` groups of stores still have to be read from shared memory.
template <int pending = 0>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- products of a warpgroup: 64 rows, float32 sums ----
// Operands in shared memory are described by an address, a swizzle (128, 64 or 32 bytes: the length of a row of the tile)
// and, for transposed operands wider than a row, the distance of the next column block.
template <int swizzle>
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address, std::uint32_t leading_bytes = 16) {
  constexpr std::uint64_t kind = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  constexpr std::uint64_t stride = swizzle * 8;  // eight rows
  return ((address & 0x3ffff) >> 4) | (std::uint64_t(leading_bytes >> 4) << 16) | ((stride >> 4) << 32) | (kind << 62);
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// The compiler must not move registers that a product in flight reads or writes.
template <int count>
__device__ __forceinline__ void pin(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int count>
__device__ __forceinline__ void pin(std::uint32_t (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(values[i])::"memory");
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
struct Product;

#define HKT_PRODUCT(TYPE, NAME, N, COUNT, A0, A1, A2, A3, A4, A5)                                                     \
  template <bool transpose_a, bool transpose_b>                                                                       \
  struct Product<TYPE, N, transpose_a, transpose_b> {                                                                 \
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
#define HKT_PRODUCTS(TYPE, NAME)                                      \
  HKT_PRODUCT(TYPE, NAME, 16, 8, "8", "9", "10", "11", "12", "13")    \
  HKT_PRODUCT(TYPE, NAME, 32, 16, "16", "17", "18", "19", "20", "21") \
  HKT_PRODUCT(TYPE, NAME, 64, 32, "32", "33", "34", "35", "36", "37") \
  HKT_PRODUCT(TYPE, NAME, 128, 64, "64", "65", "66", "67", "68", "69")
HKT_PRODUCTS(bfloat16, "bf16")
HKT_PRODUCTS(float16, "f16")

}  // namespace hkt::kernels::cuda::sm90
