// SPDX-License-Identifier: Apache-2.0
// The result of an examination for each claim: a verdict by a stated rule, and a sentence. docs/theory.md has the rules in one table.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hkt/model_config.h"

namespace hkt::theory {

// holds, fails: this model met, or did not meet, the rule. proved: a theorem, with which the numbers agree (fails where they do not).
// open: cannot be decided on this model or these inputs.
enum class Verdict : std::uint8_t { holds, fails, open, proved };

struct Claim {
  std::string key;    // psd, decomposition, subsumption, depth, gaussianity, …
  std::string paper;  // where the paper makes it
  std::string title;
  std::string rule;  // when the verdict is which
  Verdict verdict = Verdict::open;
  std::string sentence = {};  // what was found, with its numbers
};

// From the result of examine() for a model with this config.
std::vector<Claim> claims_of(const nlohmann::ordered_json& examination, const ModelConfig& config);

std::string name(Verdict verdict);

// Of a level's "normality" as probe() writes it, or "gaussianity" of older files: the paper's κ over its value for Gaussian scores;
// none without enough samples.
std::optional<double> kurtosis_ratio(const nlohmann::ordered_json& normality);

}  // namespace hkt::theory
