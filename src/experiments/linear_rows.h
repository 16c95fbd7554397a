// SPDX-License-Identifier: Apache-2.0
// Linear models of n-grams beside the models of an experiment.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/dataset.h"

namespace hkt::experiments {

// For n-grams of at most 1, 2, 3 and 4 tokens: {"name", "what", "validation_accuracy", "test_accuracy", "mean", "deviation",
// "correct_bits"}, over seeds of the order of the data. Of each sequence its first `longest` tokens count.
nlohmann::ordered_json linear_rows(const data::Dataset& dataset, std::int64_t longest,
                                   const std::vector<std::int64_t>& seeds);

}  // namespace hkt::experiments
