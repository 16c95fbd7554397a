// Numbers to one HTML page that needs nothing beside itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hkt::report {

// {"title", "answer", "runs": […], "comparison", "published", "where"}, as page.js reads them.
std::string page(const nlohmann::ordered_json& data);

}  // namespace hkt::report
