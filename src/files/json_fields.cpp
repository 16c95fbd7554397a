// The parts of reading a JSON config that need no type: parsing, suggestions and error sentences.
#include "json_fields.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace hkt::fields {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Values come from outside: what is shown of one stays short, and bytes that are not UTF-8 do not throw again.
std::string shown(const Json& value) {
  constexpr std::size_t longest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest) + "…";
}

// nlohmann's own messages begin with a code in brackets, which says nothing to a reader.
std::string without_code(const std::string& message) {
  const auto end = message.find("] ");
  return end == std::string::npos ? message : message.substr(end + 2);
}

}  // namespace

Json parse(std::string_view text, const std::string& what) {
  std::vector<std::set<std::string>> open;
  constexpr int deepest = 64;  // what reads, shows or frees deeper ones would run out of stack
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) throw std::invalid_argument(what + " is nested more than 64 deep.");
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      throw std::invalid_argument(what + " has the key " + shown(parsed) + " twice in one object.");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    throw std::invalid_argument(what + " is not JSON: " + without_code(error.what()) + ".");
  }
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  constexpr std::size_t enough = 64;  // no known name is near this long, and the distance costs the product of sizes
  const std::string head = name.substr(0, enough);
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(head, a) < edit_distance(head, b);
  });
}

void refuse_value(const std::string& key, const Json& value, const std::string& allowed) {
  throw std::invalid_argument(key + " is " + shown(value) + "; it must be " + allowed + ".");
}

void refuse_key(const std::string& where, const std::string& key, const std::vector<std::string>& known) {
  throw std::invalid_argument(where + " has the unknown key " + shown(Json(key)) + "; the nearest known one is \"" +
                              nearest(key, known) + "\".");
}

std::int64_t read_integer(const std::string& key, const Json& value, std::int64_t low, std::int64_t high) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  const std::int64_t read = fits ? value.get<std::int64_t>() : 0;
  if (!fits || read < low || read > high) {
    refuse_value(key, value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return read;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return list;
}

}  // namespace hkt::fields
