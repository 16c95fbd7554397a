// SPDX-License-Identifier: Apache-2.0
// The duration of training steps: several models are timed on the same batches, interleaved.
#pragma once

#include <ATen/Device.h>

#include <vector>

#include "experiments/task_data.h"
#include "hkt/config.h"

namespace hkt::experiments {

struct StepTime {
  double ratio = 1;                                   // median over batches of the ratio to the first model
  double seconds = 0;                                 // the first model's median, times the ratio
  double attention_ratio = 1, attention_seconds = 0;  // of one attention layer, forward and backward
};

// The configs must agree in batch size, padding and length. After a warmup, batches of the first epoch are timed: 30, or 10 of a
// stream, whose batches are all of one length.
std::vector<StepTime> step_times(const std::vector<Config>& configs, const TaskData& data, at::Device device);

}  // namespace hkt::experiments
