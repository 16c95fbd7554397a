// SPDX-License-Identifier: Apache-2.0
// A section of a JSON config as a table of fields, each with its key, a function that checks and reads it, and one that
// writes it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hkt::fields {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // for writing, in the order of the table

// Parses a JSON text. Errors and duplicate keys in an object throw std::invalid_argument; `what` names the text in them.
Json parse(std::string_view text, const std::string& what);

// JSON as text. Bytes that are not UTF-8 are replaced and do not throw: names of folders may contain them.
std::string dump(const OrderedJson& json, int indent = -1);

// The known name with the smallest edit distance from `name`.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

// Throw std::invalid_argument in one sentence, so that all errors of a section read alike.
[[noreturn]] void refuse_value(const std::string& key, const Json& value, const std::string& allowed);
[[noreturn]] void refuse_key(const std::string& where, const std::string& key, const std::vector<std::string>& known);

// Whether an untrusted value is an integer in [low, high]. get<> alone would convert fractions too, and is undefined for
// values that are too large.
template <typename AnyJson>
bool is_integer(const AnyJson& value, std::int64_t low, std::int64_t high) {
  if (value.is_number_unsigned() && value.template get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return false;
  return value.is_number_integer() && value.template get<std::int64_t>() >= low &&
         value.template get<std::int64_t>() <= high;
}

std::int64_t read_integer(const std::string& key, const Json& value, std::int64_t low, std::int64_t high);
std::string quoted_list(const std::vector<std::string>& names);

template <typename Section>
struct Field {
  std::string key;
  std::function<void(Section&, const std::string& path, const Json&)> read;
  std::function<Json(const Section&)> write;
  std::string allowed;                    // its values, in words
  std::string what;                       // one line of explanation
  std::vector<std::string> choices = {};  // its values, if they are few
};

// A key of a config as `hkt config` shows it.
struct KeyDescription {
  std::string key;  // "train.epochs"
  Json value;
  std::string allowed, what;
  std::vector<std::string> choices;
};

template <typename Section>
Field<Section> integer(const std::string& key, std::int64_t Section::* member, std::int64_t low, std::int64_t high,
                       const std::string& what) {
  return {key,
          [=](Section& section, const std::string& path, const Json& value) {
            section.*member = read_integer(path, value, low, high);
          },
          [=](const Section& section) { return Json(section.*member); },
          std::to_string(low) + " to " + std::to_string(high), what};
}

// A number in [low, high).
template <typename Section>
Field<Section> number(const std::string& key, double Section::* member, double low, double high,
                      const std::string& what) {
  return {key,
          [=](Section& section, const std::string& path, const Json& value) {
            const double read = value.is_number() ? value.template get<double>() : NAN;
            if (!(read >= low && read < high)) {
              refuse_value(path, value, "a number from " + Json(low).dump() + " to below " + Json(high).dump());
            }
            section.*member = read;
          },
          [=](const Section& section) { return Json(section.*member); },
          Json(low).dump() + " to below " + Json(high).dump(), what};
}

template <typename Section>
Field<Section> text(const std::string& key, std::string Section::* member, const std::string& what) {
  return {key,
          [=](Section& section, const std::string& path, const Json& value) {
            if (!value.is_string()) refuse_value(path, value, "a string");
            section.*member = value;
          },
          [=](const Section& section) { return Json(section.*member); }, "a string", what};
}

template <typename Section>
Field<Section> truth(const std::string& key, bool Section::* member, const std::string& what) {
  return {key,
          [=](Section& section, const std::string& path, const Json& value) {
            if (!value.is_boolean()) refuse_value(path, value, "true or false");
            section.*member = value;
          },
          [=](const Section& section) { return Json(section.*member); },
          "true or false",
          what,
          {"true", "false"}};
}

template <typename Section, typename Enum>
Field<Section> choice(const std::string& key, Enum Section::* member,
                      const std::vector<std::pair<std::string, Enum>>& names, const std::string& what) {
  std::vector<std::string> choices;
  std::string allowed;
  for (const auto& [name, meaning] : names) {
    choices.push_back(name);
    allowed += (allowed.empty() ? "" : ", ") + name;
  }
  return {key,
          [=](Section& section, const std::string& path, const Json& value) {
            std::vector<std::string> known;
            for (const auto& [name, meaning] : names) {
              if (value == name) {
                section.*member = meaning;
                return;
              }
              known.push_back(name);
            }
            std::string allowed = "one of " + quoted_list(known);
            if (value.is_string()) allowed += " (nearest: \"" + nearest(value, known) + "\")";
            refuse_value(path, value, allowed);
          },
          [=](const Section& section) {
            for (const auto& [name, meaning] : names) {
              if (section.*member == meaning) return Json(name);
            }
            throw std::invalid_argument("the config contains an enum value without a name.");
          },
          allowed,
          what,
          choices};
}

template <typename Section>
using Table = std::vector<Field<Section>>;

// Sets the fields whose keys `json` has and keeps the others.
template <typename Section>
void read(const Table<Section>& table, const std::string& name, const Json& json, Section& section) {
  if (!json.is_object()) refuse_value(name, json, "an object");
  for (const auto& [key, value] : json.items()) {
    const Field<Section>* found = nullptr;
    std::vector<std::string> known;
    for (const auto& field : table) {
      if (field.key == key) found = &field;
      known.push_back(field.key);
    }
    if (found == nullptr) refuse_key(name, key, known);
    found->read(section, name + "." + key, value);
  }
}

template <typename Section>
OrderedJson write(const Table<Section>& table, const Section& section) {
  auto json = OrderedJson::object();
  for (const auto& field : table) json[field.key] = field.write(section);
  return json;
}

template <typename Section>
std::vector<KeyDescription> describe(const Table<Section>& table, const std::string& name, const Section& section) {
  std::vector<KeyDescription> keys;
  for (const auto& field : table) {
    keys.push_back({name + "." + field.key, field.write(section), field.allowed, field.what, field.choices});
  }
  return keys;
}

// Checks a section that was filled in by code, by writing it and reading it back.
template <typename Section>
void check(const Table<Section>& table, const std::string& name, const Section& section) {
  Section copy;
  read(table, name, Json(write(table, section)), copy);
}

}  // namespace hkt::fields
