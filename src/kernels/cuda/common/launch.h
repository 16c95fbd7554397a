// SPDX-License-Identifier: Apache-2.0
// What every host file of the CUDA kernels needs: checked calls and small arithmetic.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace hkt::kernels::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("hkt: ") + what + ": " + cudaGetErrorString(error));
}

template <class Integer>
constexpr Integer ceil_divide(Integer a, Integer b) {
  return (a + b - 1) / b;
}

// So many CTAs in one dimension, if a launch takes them; more would come out as some other number.
inline dim3 grid_of(std::int64_t ctas, unsigned second = 1) {
  constexpr std::int64_t most = INT32_MAX;
  if (ctas > most)
    throw std::runtime_error("hkt: batch · heads · length asks for " + std::to_string(ctas) +
                             " blocks of threads, and a GPU takes " + std::to_string(most) +
                             " at once; split the batch");
  return dim3(static_cast<unsigned>(ctas), second);
}

// Starts kernel<<<grid, threads, shared_bytes, stream>>>(arguments...), with more than 48 KiB of shared memory if asked.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, void* stream,
            Arguments&&... arguments) {
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "shared memory");
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(std::forward<Arguments>(arguments)...);
  check(cudaGetLastError(), "starting a kernel");
}

}  // namespace hkt::kernels::cuda
