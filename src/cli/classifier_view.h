// SPDX-License-Identifier: Apache-2.0
// The score of a classifier, as JSON and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "train/checkpoint.h"
#include "train/classifier_score.h"
#include "train/run_directory.h"

namespace hkt::cli {

// What was scored, and how it went.
struct ScoredSplit {
  const data::Split& split;
  const train::Identity& model;
  train::Predictions predictions;
  train::ClassifierScore score;
};

// The text of a sequence as far as the model sees it; empty for images.
std::string text_of(const ScoredSplit& scored, std::int64_t sequence);

nlohmann::ordered_json json_of(const ScoredSplit& scored);

// score.json: {"split", "model"} and what json_of has. `model` is the checksum of model.safetensors.
void save_score(const train::RunDirectory& run, const ScoredSplit& scored, const std::string& split,
                const std::string& model);
// nullopt if there is none, if another model was scored, or, with a warning, if it is not valid output of `hkt eval`.
std::optional<nlohmann::ordered_json> read_score(const train::RunDirectory& run, const train::Warn& warn);

// `name` is that of the split or the file.
void print(const ScoredSplit& scored, const std::string& name);

}  // namespace hkt::cli
