// SPDX-License-Identifier: Apache-2.0
// Files embedded in the program.
#pragma once

#include <string_view>

namespace hkt::report::resources {

std::string_view page_html();
std::string_view common_js();
std::string_view report_js();
std::string_view explain_html();
std::string_view explain_js();
std::string_view plotly_packed();

}  // namespace hkt::report::resources
