// SPDX-License-Identifier: Apache-2.0
// The result of an examination for each of the paper's claims: a verdict and a sentence.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hkt/model_config.h"

namespace hkt::theory {

enum class Verdict : std::uint8_t { holds, fails, open };  // open: cannot be tested on this model or these inputs

struct Claim {
  std::string key;    // psd, decomposition, subsumption, depth, gaussianity
  std::string paper;  // where the paper makes it
  std::string title;
  Verdict verdict = Verdict::open;
  std::string sentence;  // what was found, with its numbers
};

// From the result of examine() for a model with this config.
std::vector<Claim> claims_of(const nlohmann::ordered_json& examination, const ModelConfig& config);

std::string name(Verdict verdict);

// Of a level's "gaussianity", as examine() and probe() write it: the paper's κ over its value for Gaussian scores; none without
// enough samples.
std::optional<double> kurtosis_ratio(const nlohmann::ordered_json& gaussianity);

}  // namespace hkt::theory
