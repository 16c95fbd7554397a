// One experiment: its data, its runs as processes side by side, and what came out as one JSON object.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "options.h"
#include "train/protocol.h"

namespace hkt::cli {

struct ExperimentOptions {
  std::filesystem::path folder;  // for the runs and results.json
  std::string budget;            // as it is to be named in the results
  std::string command;           // likewise: what was asked for
  int jobs = 0;                  // runs at a time; 0: one for each core, or four on a GPU
  MachineOptions machine;
};

// Trains what is not trained yet, writes results.json into the folder and gives it back; nothing when interrupted. The
// test set of a run is scored once, after all choices.
std::optional<nlohmann::ordered_json> run_experiment(const train::Protocol& protocol, const ExperimentOptions& options);

// Takes the step times of such a file's models on this machine, writes them into it, and gives back what it holds then.
nlohmann::ordered_json take_times(const std::filesystem::path& path, const MachineOptions& machine);

// Such a file, or throws std::invalid_argument where it is none or lacks what its readers need.
nlohmann::ordered_json read_results(const std::filesystem::path& path);

// results.json as text: one line for each model, comparison and run.
std::string results_text(const nlohmann::ordered_json& results);

}  // namespace hkt::cli
