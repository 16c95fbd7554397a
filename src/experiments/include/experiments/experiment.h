// SPDX-License-Identifier: Apache-2.0
// One experiment: its data, its runs as parallel processes, and its results as one JSON object.
#pragma once

#include <ATen/Device.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "experiments/protocol.h"
#include "experiments/run_pool.h"
#include "experiments/task_data.h"

namespace hkt::experiments {

struct ExperimentOptions {
  std::filesystem::path folder;  // for the runs and results.json
  std::string budget;            // its name in the results
  std::string command;           // the command line, recorded in the results
  bool keeps_finished = false;   // a results.json of the same command in the folder is returned as it is
  int jobs = 0;                  // runs in parallel; 0: one per core, or four on a GPU; one for language models
  at::Device device = at::kCPU;
  LoadData load;
  PoolHooks pool;
  train::Warn warn;
};

// Trains what is not trained yet, writes results.json into the folder and returns its content; nullopt if stopped. The test
// set of a run is scored once, after all choices.
std::optional<nlohmann::ordered_json> run_experiment(const Protocol& protocol, const ExperimentOptions& options);

// Measures the step times of the models of a results.json on this machine, writes them into it and returns its content.
nlohmann::ordered_json take_times(const std::filesystem::path& path, at::Device device, const LoadData& load);

}  // namespace hkt::experiments
