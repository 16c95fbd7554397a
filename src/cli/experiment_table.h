// SPDX-License-Identifier: Apache-2.0
// The results of an experiment on the terminal.
#pragma once

#include <nlohmann/json.hpp>

namespace hkt::cli {

void print_table(const nlohmann::ordered_json& results);

}  // namespace hkt::cli
