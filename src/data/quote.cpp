// Words from outside, made safe to print.
#include "data/quote.h"

#include <nlohmann/json.hpp>

namespace hkt::data {

std::string quote(std::string_view text) {
  constexpr std::size_t longest = 60;
  const nlohmann::json head = std::string(text.substr(0, longest));
  auto shown = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > longest) shown.insert(shown.size() - 1, "…");
  return shown;
}

std::string at_line(const std::string& path, std::int64_t line) { return path + ", line " + std::to_string(line); }

}  // namespace hkt::data
