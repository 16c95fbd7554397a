// SPDX-License-Identifier: Apache-2.0
// predictions.safetensors of a language model: its score on a split as sums over segments of the stream, small enough to be kept
// and enough to compute every figure again.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "train/language_score.h"
#include "train/run_directory.h"

namespace hkt::train {

struct StoredScore {
  LanguageScore score;
  std::string split, model, checksum;  // model: the checksum of model.safetensors
};

// Tensors: loss [segments] in nats, correct [segments], bytes [segments]; positions [ranges, 2] of the window, position_loss and
// position_bytes [ranges]. Sums, not means.
void save_score(const RunDirectory& run, const LanguageScore& score, const std::string& split,
                const std::string& model);

// Throws std::runtime_error with a one-sentence message if the file contains anything else.
StoredScore read_score(const RunDirectory& run);

// [{"begin", "end", "bits_per_byte"}, …], without ranges in which nothing was predicted.
nlohmann::ordered_json by_position_json(const LanguageScore& score);

}  // namespace hkt::train
