// SPDX-License-Identifier: Apache-2.0
// Experiments as the terminal shows them: data as it is loaded, a line for each run, warnings.
#pragma once

#include "experiments/experiment.h"
#include "live_lines.h"
#include "options.h"

namespace hkt::cli {

// Loads data with a progress bar, and prints what had to be mended.
data::Dataset load_data(const DataConfig& config);

// A line for each run. The lines must outlive the pool that has the hooks.
experiments::PoolHooks pool_hooks(LiveLines& lines);

// Runs an experiment with all of that; --threads is set for this process.
std::optional<nlohmann::ordered_json> run_experiment(const experiments::Protocol& protocol,
                                                     const std::filesystem::path& folder, const std::string& budget,
                                                     const std::string& command, int jobs,
                                                     const MachineOptions& machine);

}  // namespace hkt::cli
