// SPDX-License-Identifier: Apache-2.0
// results.json, the output of an experiment: validated when it is read.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace hkt::experiments {

// Throws std::invalid_argument if the file cannot be read, is not a results file or lacks a key that its readers need.
nlohmann::ordered_json read_results(const std::filesystem::path& path);

// The text of results.json, with one line per model, comparison and run.
std::string results_text(const nlohmann::ordered_json& results);

}  // namespace hkt::experiments
