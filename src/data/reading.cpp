// SPDX-License-Identifier: Apache-2.0
// Byte order marks and lines of JSON.
#include "reading.h"

#include <algorithm>

#include "files/quote.h"

namespace hkt::data {

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

namespace {

std::string names_of_keys(const fields::Json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  return listed(keys);
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 12;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) list += (i > 0 ? ", " : "") + quote(names[i]);
  if (names.size() > most) list += " and " + std::to_string(names.size() - most) + " more";
  return names.empty() ? "none" : list;
}

fields::Json object_of(std::string_view line, const std::vector<std::string>& keys, const Refuse& refuse) {
  fields::Json json;
  try {
    json = fields::parse(line, "it");
  } catch (const std::invalid_argument& error) {
    std::string why = error.what();
    if (why.ends_with('.')) why.pop_back();
    refuse("cannot be read: " + why);
  }
  const auto has = [&](const std::string& key) { return json.is_object() && json.contains(key); };
  if (std::all_of(keys.begin(), keys.end(), has)) return json;
  std::string names;
  for (const auto& key : keys) names += (names.empty() ? "" : " and ") + ("\"" + key + "\"");
  refuse("is not an object with " + names + (json.is_object() ? "; its keys are " + names_of_keys(json) : ""));
  return json;
}

}  // namespace hkt::data
