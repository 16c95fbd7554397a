// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies to shared memory, from Ampere on.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda {

// Copies 16 bytes; zeros where `inside` is false.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace hkt::kernels::cuda
