// SPDX-License-Identifier: Apache-2.0
// Byte order marks and lines of JSON.
#include "reading.h"

#include <algorithm>

namespace hkt::data {

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
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
  refuse("is not an object with " + names);
  return json;
}

}  // namespace hkt::data
