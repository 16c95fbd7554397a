// SPDX-License-Identifier: Apache-2.0
// The record of a run as one JSON object, for results.json and the report.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/run_directory.h"

namespace hkt::experiments {

// {"name", "config", "summary", "parameters", "best_validation", "epochs", "probes", "test", "theory"}, and "sample" and "phases"
// where there are such; what does not exist yet is null or empty. best_validation is an accuracy, or the bits per byte of a language
// model. "exported": true of a model without metrics, as `hkt export` writes it; its parameters are counted in its weights.
// Damaged files are left out and reported to `warn`.
nlohmann::ordered_json record_of(const train::RunDirectory& run, const train::Warn& warn);

// Which sequences a model got right, as text: a hexadecimal digit for four of them, the first in its highest bit; the last digit is
// filled with zeros.
std::string bits_text(const std::vector<bool>& correct);

// theory.json; nullopt if it does not exist or is not valid output of `hkt theory`.
std::optional<nlohmann::ordered_json> read_theory(const train::RunDirectory& run);

// predictions.safetensors of a classifier: logits [sequences, classes] and labels [sequences], of the same length. Throws
// std::runtime_error with a one-sentence message if the file contains anything else.
struct StoredPredictions {
  at::Tensor logits, labels;
  std::string split, model, checksum;  // model: the checksum of model.safetensors
};
StoredPredictions read_predictions(const train::RunDirectory& run);

}  // namespace hkt::experiments
