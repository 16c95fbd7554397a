// SPDX-License-Identifier: Apache-2.0
// TMA (the tensor memory accelerator): bulk copies between global and shared memory, reductions into global memory, and the
// fences between it and ordinary accesses.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/barrier.h"

namespace hkt::kernels::cuda::sm90 {

// A tile of a [batch, heads, rows, width] array: column, row, head, batch of its first element. What lies outside is zero.
__device__ __forceinline__ void tma_load_tile(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                              int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void tma_load(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void tma_store(void* to, std::uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// to[i] += from[i], float32.
__device__ __forceinline__ void tma_reduce_add(void* to, std::uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most `pending` groups of stores still have to be read from shared memory.
template <int pending = 0>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ void tma_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Makes ordinary writes to shared memory visible to wgmma and the TMA.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Between what the TMA does in global memory and what threads tell each other of it. Without `.global` it would
// also wait, as a fence of all memory for the whole GPU does.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace hkt::kernels::cuda::sm90
