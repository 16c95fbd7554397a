// SPDX-License-Identifier: Apache-2.0
// The current CUDA device: its properties, stream and deterministic setting.
#include "device_cuda.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace hkt::ops {
namespace {

// HKT_CUDA_CAPABILITY=80 selects kernels as for a device of compute capability 8.0, like ATEN_CPU_CAPABILITY on the CPU.
int max_capability() {
  static const int limit = [] {
    const char* text = std::getenv("HKT_CUDA_CAPABILITY");
    return text ? std::atoi(text) : std::numeric_limits<int>::max();
  }();
  return limit;
}

}  // namespace

kernels::cuda::Device current_device() {
  const auto* properties = at::cuda::getCurrentDeviceProperties();
  kernels::cuda::Device device;
  device.capability = 10 * properties->major + properties->minor;
  device.sm_count = properties->multiProcessorCount;
  device.shared_bytes = static_cast<int>(properties->sharedMemPerBlockOptin);
  device.stream = at::cuda::getCurrentCUDAStream().stream();
  device.deterministic = at::globalContext().deterministicAlgorithms();
  TORCH_CHECK(device.capability >= kernels::cuda::oldest_capability, "hkt: ", properties->name,
              " has compute capability ", properties->major, ".", properties->minor, "; this build has kernels for ",
              kernels::cuda::built_for());
  device.capability = std::min(device.capability, max_capability());
  return device;
}

}  // namespace hkt::ops
