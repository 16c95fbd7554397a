// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <stdexcept>
#include <string_view>

#include "files/json_fields.h"
#include "resources.h"

namespace hkt::report {
namespace {

// JSON as the text of a script element, where "<!--", "<script" and "</script" mean something to the browser: in JSON a "<"
// stands in strings alone, and there it can be written otherwise.
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
  if (at == std::string::npos) throw std::logic_error("the page has no place for " + std::string(mark) + ".");
  text.replace(at, mark.size(), with);
}

std::string filled(const nlohmann::ordered_json& data, std::string_view script) {
  std::string text(resources::page_html());
  replace(text, "@SCRIPT@", script);
  replace(text, "@PLOTLY@", resources::plotly_js());
  replace(text, "@DATA@", inside_script(fields::dump(data)));  // last: it may hold anything
  return text;
}

}  // namespace

std::string page(const nlohmann::ordered_json& data) { return filled(data, resources::page_js()); }

std::string explanation(const nlohmann::ordered_json& data) { return filled(data, resources::explain_js()); }

}  // namespace hkt::report
