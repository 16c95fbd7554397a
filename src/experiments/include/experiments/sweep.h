// SPDX-License-Identifier: Apache-2.0
// A grid of settings: a run for each combination, chosen on validation.
#pragma once

#include <ATen/Device.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/run.h"
#include "experiments/run_pool.h"
#include "experiments/task_data.h"
#include "train/presets.h"

namespace hkt::experiments {

// The values that one key takes.
struct Axis {
  std::string key;  // "train.learning_rate"
  std::vector<std::string> values;
};

// From "section.key=value,value,…" each. Throws std::invalid_argument, in one sentence, for anything else, for keys or values
// that occur twice, and for keys of the data: runs on other data cannot be compared.
std::vector<Axis> axes_of(const std::vector<std::string>& grid);

struct Trial {
  std::vector<std::string> changes;  // "train.learning_rate=1e-4", one for each axis
  Run run;
};

// All combinations, the last axis fastest, each named by its values. Throws std::invalid_argument for a combination that is
// no valid config, and for more than a thousand.
std::vector<Trial> trials_of(const std::vector<Axis>& axes, const train::ConfigDraft& base, const TaskData& data,
                             const std::filesystem::path& folder);

struct SweepOptions {
  int jobs = 0;  // runs in parallel; 0: one per core, or four on a GPU; one for language models
  at::Device device = at::kCPU;
  PoolHooks pool;
};

// Trains what is not trained yet and sorts the trials, best on validation first; false if stopped.
bool run_sweep(std::vector<Trial>& trials, const SweepOptions& options);

}  // namespace hkt::experiments
