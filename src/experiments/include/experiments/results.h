// SPDX-License-Identifier: Apache-2.0
// results.json, what an experiment leaves: checked when it is read, and written for people and programs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace hkt::experiments {

// Throws std::invalid_argument where the file is none or lacks what its readers need.
nlohmann::ordered_json read_results(const std::filesystem::path& path);

// As text: one line for each model, comparison and run.
std::string results_text(const nlohmann::ordered_json& results);

}  // namespace hkt::experiments
