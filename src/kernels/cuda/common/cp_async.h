// SPDX-License-Identifier: Apache-2.0
// cp.async: asynchronous copies from global to shared memory, from Ampere on.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda {

// Copies 16 bytes, of which only the first `bytes` are read; the rest become zeros.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_16(void* to, const void* from, int bytes) {
  cp_async_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(to)), from, bytes);
}
// Copies 16 bytes; zeros where `inside` is false.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, bool inside) {
  cp_async_16(to, from, inside ? 16 : 0);
}
// Copies 4 bytes, wherever they lie.
__device__ __forceinline__ void cp_async_4(void* to, const void* from) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `pending` of this thread's groups are in flight.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace hkt::kernels::cuda
