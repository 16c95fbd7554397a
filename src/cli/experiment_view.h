// SPDX-License-Identifier: Apache-2.0
// Experiments on the terminal: a progress bar for loading data, one line per run, warnings.
#pragma once

#include "data/stream.h"
#include "experiments/experiment.h"
#include "live_lines.h"
#include "options.h"

namespace hkt::cli {

// Load data with a progress bar, and print its notices (such as a rebuilt cache). load_task: one of the two.
data::Dataset load_data(const DataConfig& config);
data::Streams load_streams(const DataConfig& config);
experiments::TaskData load_task(const DataConfig& config);

// Shows one line per run. `lines` must outlive the pool that uses the hooks.
experiments::PoolHooks pool_hooks(LiveLines& lines);

// Runs an experiment with these; applies --threads to this process.
std::optional<nlohmann::ordered_json> run_experiment(const experiments::Protocol& protocol,
                                                     const std::filesystem::path& folder, const std::string& budget,
                                                     const std::string& command, int jobs,
                                                     const MachineOptions& machine, bool keeps_finished = false);

}  // namespace hkt::cli
