// SPDX-License-Identifier: Apache-2.0
// Capture of CUDA graphs; without CUDA the work is only called.
#include "graph.h"

#include <torch/cuda.h>

#ifdef HKT_CUDA_GRAPHS
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace hkt::bench {

std::function<void()> replayable(const std::function<void()>& work, at::Device device) {
#ifdef HKT_CUDA_GRAPHS
  if (device.is_cuda()) {
    work();
    wait_for(device);
    const auto graph = std::make_shared<at::cuda::CUDAGraph>();
    {
      const c10::cuda::CUDAStreamGuard on_stream(at::cuda::getStreamFromPool());
      graph->capture_begin();
      work();
      graph->capture_end();
    }
    return [graph] { graph->replay(); };
  }
#endif
  static_cast<void>(device);
  return work;
}

void wait_for(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

}  // namespace hkt::bench
