// SPDX-License-Identifier: Apache-2.0
// Numbers to one HTML page that needs nothing beside itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hkt::report {

// {"title", "answers": […], "runs": […], "comparisons": […], "published", "where"}, as page.js reads them.
std::string page(const nlohmann::ordered_json& data);

// What a model looked at in one input, as explain.js reads it.
std::string explanation(const nlohmann::ordered_json& data);

}  // namespace hkt::report
