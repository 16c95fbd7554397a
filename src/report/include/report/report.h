// SPDX-License-Identifier: Apache-2.0
// Renders results as one self-contained HTML page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hkt::report {

// {"title", "answers": […], "runs": […], "comparisons": […], "published", "where"}, as the scripts in page/ read them.
std::string page(const nlohmann::ordered_json& data);

// What models did with one input, as explain/numbers.js says.
std::string explanation(const nlohmann::ordered_json& data);

}  // namespace hkt::report
