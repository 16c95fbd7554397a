// SPDX-License-Identifier: Apache-2.0
// One experiment: its data, its runs as processes side by side, and what came out as one JSON object.
#pragma once

#include <ATen/Device.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "experiments/protocol.h"
#include "experiments/run_pool.h"

namespace hkt::experiments {

using LoadData = std::function<data::Dataset(const DataConfig& config)>;

struct ExperimentOptions {
  std::filesystem::path folder;  // for the runs and results.json
  std::string budget;            // as it is to be named in the results
  std::string command;           // likewise: what was asked for
  int jobs = 0;                  // runs at a time; 0: one for each core, or four on a GPU
  at::Device device = at::kCPU;
  LoadData load;
  PoolHooks pool;
  train::Warn warn;
};

// Trains what is not trained yet, writes results.json into the folder and gives it back; nothing when stopped. The test set
// of a run is scored once, after all choices.
std::optional<nlohmann::ordered_json> run_experiment(const Protocol& protocol, const ExperimentOptions& options);

// Takes the step times of such a file's models on this machine, writes them into it, and gives back what it holds then.
nlohmann::ordered_json take_times(const std::filesystem::path& path, at::Device device, const LoadData& load);

}  // namespace hkt::experiments
