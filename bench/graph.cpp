// SPDX-License-Identifier: Apache-2.0
// Capture of CUDA graphs; without CUDA the work is only called.
#include "graph.h"

#include <torch/cuda.h>

#ifdef HKT_CUDA_GRAPHS
#include "nn/graphed_step_cuda.h"
#endif

namespace hkt::bench {

std::function<void()> replayable(const std::function<void()>& work, at::Device device) {
#ifdef HKT_CUDA_GRAPHS
  if (device.is_cuda()) {
    work();
    return [graph = std::make_shared<GraphedStep>(work)] { graph->replay(); };
  }
#endif
  static_cast<void>(device);
  return work;
}

void wait_for(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

}  // namespace hkt::bench
