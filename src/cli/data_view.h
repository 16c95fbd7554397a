// SPDX-License-Identifier: Apache-2.0
// Data sets on the terminal and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "data/summary.h"
#include "train/linear_baseline.h"

namespace hkt::cli {

// A table of splits and one of classes on standard output; what may be wrong with them on standard error.
void print_summary(const data::Summary& summary, std::int64_t max_length);
nlohmann::ordered_json json_of(const data::Summary& summary);

// `training`: how many sequences there were to train it on.
void print_linear_score(const train::LinearScore& score, std::int64_t training);

// Says so where it is better than a trained model's accuracy on validation.
void warn_of_linear_score(const train::LinearScore& score, double accuracy);

}  // namespace hkt::cli
