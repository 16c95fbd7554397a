// SPDX-License-Identifier: Apache-2.0
// Torch's current CUDA device, described for the kernels.
#pragma once

#include "kernels/attention.h"

namespace hkt::ops {

// Throws c10::Error if this build has no kernels for the device; the message says which devices it supports.
kernels::cuda::Device current_device();

}  // namespace hkt::ops
