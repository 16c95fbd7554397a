// SPDX-License-Identifier: Apache-2.0
// What kernels need to know of the current CUDA device, as torch has it.
#pragma once

#include "kernels/attention.h"

namespace hkt::ops {

// Throws c10::Error, with what was built for what, where there are no kernels for the device.
kernels::cuda::Device current_device();

}  // namespace hkt::ops
