// SPDX-License-Identifier: Apache-2.0
// GPU work as a CUDA graph: captured once, then replayed with one launch instead of hundreds.
#pragma once

#include <ATen/cuda/CUDAGraph.h>

#include <functional>

namespace hkt {

class GraphedStep {
 public:
  // Captures what `work` launches without running it. `work` must have run eagerly before, so that lazy initialisation is
  // not captured. The tensors it reads and writes must keep their addresses for the lifetime of this object. Memory that it
  // allocates can be shared with another graph, if that one outlives this one and the two never run at the same time.
  explicit GraphedStep(const std::function<void()>& work, GraphedStep* share_memory_with = nullptr);

  // Runs the graph on the current stream. The random number generator advances as in an eager run.
  void replay() { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace hkt
