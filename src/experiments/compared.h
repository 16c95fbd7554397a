// SPDX-License-Identifier: Apache-2.0
// Each model against its baselines: differences, intervals and tests, as the list "comparisons" of results.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "experiments/comparison.h"
#include "row.h"
#include "scores.h"

namespace hkt::experiments {

// In points of accuracy. The verdict is that of the paired t-test over seeds, corrected for all comparisons of the list by Holm.
nlohmann::ordered_json compared_classifiers(const std::vector<Row>& rows, const std::vector<Scores>& scores);

// In bits per byte: below zero a model is better than its baseline.
nlohmann::ordered_json compared_language_models(const std::vector<Row>& rows, const std::vector<Scores>& scores);

// [low, high], or null.
nlohmann::ordered_json json_of(const std::optional<Interval>& interval);

}  // namespace hkt::experiments
