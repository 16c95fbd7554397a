// SPDX-License-Identifier: Apache-2.0
// Reading files of labels and texts, line by line.
#include "data/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "data/digest.h"
#include "files/line_reader.h"
#include "files/quote.h"
#include "reading.h"

namespace hkt::data::text {
namespace {

namespace fs = std::filesystem;

constexpr int reader_version = 2;  // raise when the reader's output for the same files changes
constexpr std::size_t longest_label = 256, most_labels = 10'000;

bool is_json(const fs::path& path) {
  const auto extension = path.extension();
  if (extension != ".tsv" && extension != ".jsonl") {
    throw std::invalid_argument(path.string() + " has the extension " + quote(extension.string()) +
                                "; it must be .tsv (label, tab, text) or .jsonl ({\"label\": …, \"text\": …}).");
  }
  return extension == ".jsonl";
}

struct Row {
  std::string label, text;
};

Row row_of_tsv(std::string_view line, const Refuse& refuse) {
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) refuse("has no tab between label and text");
  return {std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))};
}

Row row_of_json(std::string_view line, const Refuse& refuse) {
  const auto json = object_of(line, {"label", "text"}, refuse);
  const auto& label = json["label"];
  if (!label.is_string() && !label.is_number_integer()) refuse("has a label that is neither a string nor an integer");
  if (!json["text"].is_string()) refuse("has a text that is not a string");
  return {label.is_string() ? label.get<std::string>() : label.dump(), json["text"].get<std::string>()};
}

void check_row(const Row& row, const Refuse& refuse) {
  if (row.label.empty()) refuse("has an empty label");
  if (row.text.empty()) refuse("has an empty text");
  if (row.label.size() > longest_label) {
    refuse("has a label of " + std::to_string(row.label.size()) + " bytes; it may have at most " +
           std::to_string(longest_label) + " (the label comes before the text)");
  }
  if (!is_utf8(row.label)) refuse("has a label that is not UTF-8, " + quote(row.label));
  if (!is_utf8(row.text)) refuse("has a text that is not UTF-8");
  if (row.label.find('\0') != std::string::npos || row.text.find('\0') != std::string::npos) {
    refuse("contains the byte 0, which is reserved for padding");
  }
}

using Take = std::function<void(const Row& row, const Refuse& refuse)>;

bool is_one_of(std::string word, const std::set<std::string>& words) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return words.contains(word);
}

// A header row with the names of the columns.
bool is_header(const Row& row) {
  return is_one_of(row.label, {"label", "labels", "class", "category", "target", "sentiment"}) &&
         is_one_of(row.text, {"text", "texts", "sentence", "review", "content", "comment", "document", "input"});
}

// True if the file begins with a header row, which is skipped.
bool read_rows(const fs::path& path, const Take& take, const Notify& notify) {
  constexpr std::int64_t often = 1024;
  constexpr std::size_t longest_line = std::size_t{1} << 26;
  const bool json = is_json(path);
  LineReader lines(path, longest_line);
  const auto total = static_cast<std::int64_t>(fs::file_size(path));
  std::int64_t number = 0;
  bool has_header = false;
  const Refuse refuse = [&](const std::string& why) {
    throw std::invalid_argument(at_line(path.string(), number) + " " + why + ".");
  };
  while (auto line = lines.next()) {
    const auto text = number == 0 ? without_mark(line->text) : line->text;
    if (notify && number % often == 0) notify(lines.bytes(), total, "reading " + path.string());
    ++number;
    if (line->cut) refuse("has more than 64 MiB");
    if (text.empty()) refuse("is empty");
    const auto row = json ? row_of_json(text, refuse) : row_of_tsv(text, refuse);
    check_row(row, refuse);
    if (number == 1 && !json && is_header(row)) {
      has_header = true;
      continue;
    }
    take(row, refuse);
  }
  return has_header;
}

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

}  // namespace

Prepared read(const fs::path& train, const fs::path& test, const Notify& notify) {
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
  const auto read = [&](const fs::path& path, const Take& take) {
    if (!with_file([&] { return read_rows(path, take, notify); })) return;
    prepared.notices.push_back("the first line of " + path.string() + " names its columns and is skipped.");
  };
  read(train, take_train);
  if (prepared.train.size() == 0) throw std::invalid_argument(train.string() + " has no line with a label and a text.");
  renumber(prepared, numbers);
  if (test.empty()) return prepared;
  const auto take_test = [&](const Row& row, const Refuse& refuse) {
    const auto found = numbers.find(row.label);
    if (found == numbers.end()) {
      refuse("has the label " + quote(row.label) + ", which " + train.string() + " does not have");
    }
    prepared.test.add(bytes_of(row.text), found->second);
  };
  read(test, take_test);
  if (prepared.test.size() == 0) throw std::invalid_argument(test.string() + " has no line with a label and a text.");
  return prepared;
}

std::string fingerprint(const fs::path& train, const fs::path& test) {
  const auto print = [](const fs::path& path) {
    return path.empty()
               ? ""
               : (is_json(path) ? "jsonl " : "tsv ") + with_file([&] { return digest_of_file(Digest::md5, path); });
  };
  const nlohmann::ordered_json json = {
      {"task", "text"}, {"version", reader_version}, {"train", print(train)}, {"test", print(test)}};
  return json.dump();
}

}  // namespace hkt::data::text
