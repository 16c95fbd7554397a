// SPDX-License-Identifier: Apache-2.0
// The duration of training steps: several models are timed on the same batches, interleaved.
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

// The configs must agree in batch size, padding and length. After a warmup, `batches` batches are timed, in the order of
// the first epoch.
std::vector<StepTime> step_times(const std::vector<Config>& configs, const data::Split& split, at::Device device,
                                 int batches);

}  // namespace hkt::experiments
