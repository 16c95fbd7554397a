// SPDX-License-Identifier: Apache-2.0
// What a training step costs: several models take the same batches, interleaved.
#pragma once

#include <ATen/Device.h>

#include <vector>

#include "data/dataset.h"
#include "hkt/config.h"

namespace hkt::experiments {

struct StepTime {
  double ratio = 1;                                   // median over batches of the ratio to the first model
  double seconds = 0;                                 // the first model's median, times the ratio
  double attention_ratio = 1, attention_seconds = 0;  // of one attention layer, forward and backward
};

// The configs must agree in batch size, padding and length. `batches` of the first epoch's order are used.
std::vector<StepTime> step_times(const std::vector<Config>& configs, const data::Split& split, at::Device device,
                                 int batches);

}  // namespace hkt::experiments
