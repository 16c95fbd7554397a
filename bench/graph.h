// SPDX-License-Identifier: Apache-2.0
// Work of many short kernels as a CUDA graph, so that what is measured is the GPU and not the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace hkt::bench {

// The work itself on the CPU; on a GPU a replay of it, captured once as a CUDA graph.
std::function<void()> replayable(const std::function<void()>& work, at::Device device);
void wait_for(at::Device device);

}  // namespace hkt::bench
