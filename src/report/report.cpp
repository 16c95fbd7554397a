// SPDX-License-Identifier: Apache-2.0
// Fills the page template with data and scripts.
#include "report/report.h"

#include <stdexcept>
#include <string_view>

#include "files/json_fields.h"
#include "resources.h"

namespace hkt::report {
namespace {

// Escapes JSON for a script element, in which "<!--", "<script" and "</script" are special. In JSON a "<" occurs only within
// strings, where it can be written as an escape sequence.
std::string inside_script(const std::string& json) {
  std::string result;
  result.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

void replace(std::string& text, std::string_view mark, std::string_view with) {
  const auto at = text.find(mark);
  if (at == std::string::npos) throw std::logic_error("the page template has no " + std::string(mark) + ".");
  text.replace(at, mark.size(), with);
}

}  // namespace

std::string page(const nlohmann::ordered_json& data) {
  std::string text(resources::page_html());
  replace(text, "@SCRIPT@", resources::report_js());
  replace(text, "@COMMON@", resources::common_js());
  replace(text, "@PLOTLY@", resources::plotly_packed());
  replace(text, "@DATA@", inside_script(fields::dump(data)));  // last: the data may contain the other marks
  return text;
}

std::string explanation(const nlohmann::ordered_json& data) {
  std::string text(resources::explain_html());
  replace(text, "@SCRIPT@", resources::explain_js());
  replace(text, "@DATA@", inside_script(fields::dump(data)));
  return text;
}

}  // namespace hkt::report
