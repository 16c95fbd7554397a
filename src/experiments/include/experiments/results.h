// SPDX-License-Identifier: Apache-2.0
// results.json, the output of an experiment: validated when it is read.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hkt::experiments {

// Throws std::invalid_argument if the file cannot be read, is not a results file or lacks a key that its readers need.
nlohmann::ordered_json read_results(const std::filesystem::path& path);

// Bits per byte instead of accuracies. Files of classifiers have no "kind".
bool are_of_language_models(const nlohmann::ordered_json& results);

std::vector<std::string> run_names(const nlohmann::ordered_json& results);

// A run's record, and the entry of the model it belongs to. Throws std::invalid_argument if the results, which are in the file
// `path`, have no such run.
struct PublishedRun {
  nlohmann::ordered_json model, record;
};
PublishedRun published_run(const nlohmann::ordered_json& results, const std::string& path, const std::string& name);

// The text of results.json, with one line per model, comparison and run.
std::string results_text(const nlohmann::ordered_json& results);

}  // namespace hkt::experiments
