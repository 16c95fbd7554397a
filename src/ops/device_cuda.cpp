// SPDX-License-Identifier: Apache-2.0
// The current CUDA device: its properties, stream and the wish for determinism.
#include "device_cuda.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace hkt::ops {
namespace {

// HKT_CUDA_CAPABILITY=80 keeps to the kernels of that generation and older ones, as ATEN_CPU_CAPABILITY does on the CPU.
int most_capability() {
  static const int most = [] {
    const char* text = std::getenv("HKT_CUDA_CAPABILITY");
    return text ? std::atoi(text) : std::numeric_limits<int>::max();
  }();
  return most;
}

}  // namespace

kernels::cuda::Device current_device() {
  const auto* properties = at::cuda::getCurrentDeviceProperties();
  kernels::cuda::Device device;
  device.capability = 10 * properties->major + properties->minor;
  device.multiprocessors = properties->multiProcessorCount;
  device.shared_bytes = static_cast<int>(properties->sharedMemPerBlockOptin);
  device.stream = at::cuda::getCurrentCUDAStream().stream();
  device.deterministic = at::globalContext().deterministicAlgorithms();
  TORCH_CHECK(device.capability >= kernels::cuda::oldest_capability, "hkt: ", properties->name,
              " has compute capability ", properties->major, ".", properties->minor, "; this build has kernels for ",
              kernels::cuda::built_for());
  device.capability = std::min(device.capability, most_capability());
  return device;
}

}  // namespace hkt::ops
