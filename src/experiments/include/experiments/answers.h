// SPDX-License-Identifier: Apache-2.0
// What runs and experiments answer, in sentences: how accurate HKT is next to standard attention, and at what cost; of language
// models, how many bits a byte takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hkt::experiments {

// From records of runs: the best HKT run against the best standard run if all are classifiers scored on the same data, otherwise
// each run by itself.
std::vector<std::string> answers(const nlohmann::ordered_json& runs);

// From results.json of an experiment whose first model is standard attention, by means over seeds, or of language models, with
// the intervals of their differences; empty for others.
std::string answer(const nlohmann::ordered_json& results);

}  // namespace hkt::experiments
