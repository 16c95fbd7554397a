// SPDX-License-Identifier: Apache-2.0
// What a model did with one input, as the page of hkt explain reads it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "theory/ablation.h"
#include "train/checkpoint.h"

namespace hkt::cli {

// The input, and the parts of it that are left out one at a time: tokens of an expression, words of a text, of which blanks are
// left so that all others keep their places, or patches of an image, of which its mean is left.
struct ExplainedInput {
  std::vector<std::uint8_t> tokens;
  std::vector<theory::Unit> units;
  std::int64_t unit_size = 1;               // words or tokens in a unit
  std::optional<std::uint8_t> replacement;  // what is left
};
ExplainedInput explained_input(Task task, std::vector<std::uint8_t> tokens);

struct Answer {
  std::string text;  // a class or a next token
  double probability = 0;
};

struct Explanation {
  Answer best;
  nlohmann::ordered_json page;  // what explain/numbers.js says
};
// `label` is among the answers of a classifier even where it is improbable.
Explanation explain(const train::TrainedModel& trained, const std::string& name, const ExplainedInput& input,
                    const std::optional<std::string>& label);

// The bytes that the numbers of each token take in the page.
std::int64_t page_bytes_per_token(const ModelConfig& model);

}  // namespace hkt::cli
