// SPDX-License-Identifier: Apache-2.0
// Work on a GPU as a CUDA graph: captured once, then replayed with one launch instead of hundreds.
#pragma once

#include <ATen/cuda/CUDAGraph.h>

#include <functional>

namespace hkt::train {

class GraphedStep {
 public:
  // Captures what `work` launches without running it. Work of the same kind must have run before, so that nothing is
  // made for the first time. The tensors it reads and writes must stay where they are for as long as this lives. Those
  // it makes can share their memory with those of another graph, if that one lives on and the two never overlap.
  explicit GraphedStep(const std::function<void()>& work, GraphedStep* share_memory_with = nullptr);

  // Runs it on the current stream. Random numbers go on as if it had been launched.
  void replay() { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace hkt::train
