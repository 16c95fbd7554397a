// SPDX-License-Identifier: Apache-2.0
// Capture with torch's CUDA graphs.
#include "nn/graphed_step_cuda.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace hkt {
namespace {

// One stream for all captures: torch's allocator reuses freed memory only on the stream it belongs to.
c10::cuda::CUDAStream capture_stream() {
  static const auto stream = c10::cuda::getStreamFromPool();
  return stream;
}

}  // namespace

GraphedStep::GraphedStep(const std::function<void()>& work, GraphedStep* share_memory_with) {
  const auto memory = share_memory_with ? share_memory_with->graph_.pool() : at::cuda::MempoolId_t{0, 0};
  c10::cuda::device_synchronize();
  // cuBLAS keeps a workspace per stream. The graph's must come from its own memory pool and not be used outside of it.
  at::cuda::clearCublasWorkspaces();
  {
    const c10::cuda::CUDAStreamGuard guard(capture_stream());
    // Thread-local mode, because another thread prepares batches meanwhile.
    graph_.capture_begin(memory, cudaStreamCaptureModeThreadLocal);
    work();
    graph_.capture_end();
  }
  at::cuda::clearCublasWorkspaces();
}

}  // namespace hkt
