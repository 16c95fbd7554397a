// SPDX-License-Identifier: Apache-2.0
// Linear models of n-grams beside the models of an experiment.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/dataset.h"

namespace hkt::experiments {

// For n-grams of at most 1, 2, 3 and 4 tokens: {"name", "what", "learning_rate", "validation_accuracy", "correct_bits",
// "test_accuracy", "mean", "deviation"}, over seeds of the order of the data. The learning rate is chosen on validation, with the first
// seed. Of each sequence its first `longest` tokens count.
nlohmann::ordered_json linear_rows(const data::Dataset& dataset, std::int64_t longest,
                                   const std::vector<std::int64_t>& seeds);

}  // namespace hkt::experiments
