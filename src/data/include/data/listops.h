// SPDX-License-Identifier: Apache-2.0
// ListOps, generated from a seed by Long Range Arena's grammar: the same data on every machine.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data {

// "paper": DataConfig's defaults. "lra": Long Range Arena's limits and sizes. Other names: std::invalid_argument.
DataConfig listops_preset(const std::string& name);
std::vector<std::string> listops_presets();

namespace listops {

// The root has depth 1 and is an operator. A node at a depth below max_depth is an operator with probability 1/4, else
// a digit; a node at max_depth is a digit. So operators nest max_depth - 1 deep, as in Long Range Arena's code. An
// operator has 2 to max_arguments arguments, uniformly distributed. An expression is kept if it has min_tokens to
// max_tokens tokens (operators, digits and "]"; there are no parentheses) and is new: none occurs twice, within a split
// or in two of them. Test is drawn first, then validation, then train, each from a random stream of its own, so test and
// validation do not depend on the number of training samples.
// Throws std::invalid_argument for limits that allow no expressions, or too few.
Prepared generate(const DataConfig& config, const Notify& notify = {});

// Everything that determines the generated data.
std::string fingerprint(const DataConfig& config);

}  // namespace listops
}  // namespace hkt::data
