// SPDX-License-Identifier: Apache-2.0
// Accuracy on ListOps by the depth and the length of expressions.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "data/dataset.h"

namespace hkt::experiments {

// Adds "by_depth" and "by_length" to a model of results.json: [{"from", "to", "sequences", "accuracy"}], in percent, the mean over
// seeds. `correct` has, for each seed, which sequences of the split are classified correctly. Nothing for other tasks.
void add_by_expression(nlohmann::ordered_json& model, const DataConfig& task, const data::Split& split,
                       const std::vector<at::Tensor>& correct);

}  // namespace hkt::experiments
