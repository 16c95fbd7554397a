// SPDX-License-Identifier: Apache-2.0
// What is known of a run once it is over, as one JSON object: the results of experiments are made of them, and the report.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/run_directory.h"

namespace hkt::experiments {

// {"name", "config", "summary", "parameters", "best_validation", "epochs", "probes", "test", "theory"}; what is not there
// yet is null or empty. Damaged files are left out, of which `warn` is told.
nlohmann::ordered_json record_of(const train::RunDirectory& run, const train::Warn& warn);

// theory.json; nothing where it is not there, or is not what `hkt theory` writes.
std::optional<nlohmann::ordered_json> read_theory(const train::RunDirectory& run);

// predictions.safetensors: logits [sequences, classes] and labels [sequences] that fit each other. Throws
// std::runtime_error, in one sentence, for a file that holds something else.
struct StoredPredictions {
  at::Tensor logits, labels;
  std::string split, model, checksum;  // model: the checksum of the one that made them
};
StoredPredictions read_predictions(const train::RunDirectory& run);

}  // namespace hkt::experiments
