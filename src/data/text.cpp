// SPDX-License-Identifier: Apache-2.0
// The user's labels, numbered, and texts; and what determines them.
#include "data/text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/digest.h"
#include "files/quote.h"
#include "labelled_rows.h"

namespace hkt::data::text {
namespace {

namespace fs = std::filesystem;

constexpr int reader_version = 2;  // raise when the reader's output for the same files changes
constexpr std::size_t most_labels = 10'000;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Labels are numbered in order of appearance, and renumbered in sorted order once all are known.
using Numbers = std::map<std::string, std::int64_t>;

bool as_integer(const std::string& label, std::int64_t& value) {
  const auto* end = label.data() + label.size();
  const auto result = std::from_chars(label.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

std::vector<std::string> sorted(const Numbers& numbers) {
  std::vector<std::pair<std::int64_t, std::string>> labels;
  bool integers = true;
  for (const auto& [label, number] : numbers) {
    std::int64_t value = 0;
    integers = as_integer(label, value) && integers;
    labels.emplace_back(value, label);
  }
  if (integers) std::sort(labels.begin(), labels.end());
  std::vector<std::string> result;
  for (const auto& [value, label] : labels) result.push_back(label);
  return result;
}

void renumber(Prepared& prepared, Numbers& numbers) {
  prepared.labels = sorted(numbers);
  std::vector<std::int64_t> place(prepared.labels.size());
  for (std::size_t i = 0; i < place.size(); ++i) {
    auto& number = numbers[prepared.labels[i]];
    place[number] = static_cast<std::int64_t>(i);
    number = place[number];
  }
  for (auto& label : prepared.train.labels) label = place[label];
}

// "csv ", "folder " and so on, and a digest of the content.
std::string print_of(const fs::path& path) {
  if (path.empty()) return "";
  const auto md5 = [](const fs::path& file) { return digest_of_file(Digest::md5, file); };
  switch (form_of(path)) {
    case RowForm::tsv:
      return "tsv " + md5(path);
    case RowForm::csv:
      return "csv " + md5(path);
    case RowForm::jsonl:
      return "jsonl " + md5(path);
    case RowForm::folder:
      break;
  }
  std::string all;
  for (const auto& [label, files] : classes_in(path)) {
    for (const auto& file : files) all += label + "\t" + md5(file) + "\n";
  }
  return "folder " + digest(Digest::md5, all);
}

// Settings that no file heeds would be a misunderstanding.
void check_settings(const DataConfig& config) {
  const auto heeded = [&](const auto& heeds) {
    return heeds(form_of(config.train)) || (!config.test.empty() && heeds(form_of(config.test)));
  };
  const auto refuse = [&](const std::string& key, const char* use) {
    throw std::invalid_argument(key + " is " + use + "; " + config.train + " is something else.");
  };
  const bool columns = heeded([](RowForm form) { return form == RowForm::csv || form == RowForm::tsv; });
  const bool keys = columns || heeded([](RowForm form) { return form == RowForm::jsonl; });
  if (!keys && !config.text.empty()) refuse("data.text", "a column of a .csv or .tsv or a key of a .jsonl");
  if (!keys && !config.label.empty()) refuse("data.label", "a column of a .csv or .tsv or a key of a .jsonl");
  if (!columns && config.header != Presence::automatic) refuse("data.header", "for .csv and .tsv files");
  if (!columns && config.quotes != Presence::automatic) refuse("data.quotes", "for .csv and .tsv files");
}

}  // namespace

Prepared read(const DataConfig& config, const Notify& notify) {
  check_settings(config);
  Prepared prepared;
  Numbers numbers;
  const auto take_train = [&](const Row& row, const Refuse& refuse) {
    const auto number = numbers.emplace(row.label, std::ssize(numbers)).first->second;
    if (numbers.size() > most_labels) {
      refuse("adds label number " + std::to_string(numbers.size()) + "; at most " + std::to_string(most_labels) +
             " different labels are allowed");
    }
    prepared.train.add(bytes_of(row.text), number);
  };
  const auto read = [&](const std::string& path, const TakeRow& take) {
    with_file([&] { read_rows(path, config, take, notify, prepared.notices); });
  };
  read(config.train, take_train);
  if (prepared.train.size() == 0) throw std::invalid_argument(config.train + " has no line with a label and a text.");
  renumber(prepared, numbers);
  if (config.test.empty()) return prepared;
  const auto take_test = [&](const Row& row, const Refuse& refuse) {
    const auto found = numbers.find(row.label);
    if (found == numbers.end()) {
      refuse("has the label " + quote(row.label) + ", which " + config.train + " does not have");
    }
    prepared.test.add(bytes_of(row.text), found->second);
  };
  read(config.test, take_test);
  if (prepared.test.size() == 0) throw std::invalid_argument(config.test + " has no line with a label and a text.");
  return prepared;
}

std::string fingerprint(const DataConfig& config) {
  nlohmann::ordered_json json = {{"task", "text"}, {"version", reader_version}};
  with_file([&] {
    json["train"] = print_of(config.train);
    json["test"] = print_of(config.test);
  });
  // Left out by default, so that what was packed before these keys existed is still found.
  if (!config.text.empty()) json["text"] = config.text;
  if (!config.label.empty()) json["label"] = config.label;
  if (config.header != Presence::automatic) json["header"] = config.header == Presence::yes;
  if (config.quotes != Presence::automatic) json["quotes"] = config.quotes == Presence::yes;
  return json.dump();
}

}  // namespace hkt::data::text
