// Reading files of labels and texts, line by line from the mapped file.
#include "data/text.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/md5.h"
#include "data/quote.h"
#include "files/json_fields.h"
#include "files/mapped_file.h"

namespace hkt::data::text {
namespace {

namespace fs = std::filesystem;
using fields::Json;

constexpr int reader_version = 1;  // to be raised when the same files come to be read as something else
constexpr std::size_t longest_label = 256, most_labels = 10'000;

// A wrong path is the user's mistake, not a failure of this machine.
MappedFile map(const fs::path& path) try { return MappedFile(path); } catch (const std::runtime_error& error) {
  throw std::invalid_argument(error.what());
}

std::string_view content(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool is_json(const fs::path& path) {
  const auto extension = path.extension();
  if (extension != ".tsv" && extension != ".jsonl") {
    throw std::invalid_argument(path.string() + " has the ending " + quote(extension.string()) +
                                "; it must be .tsv (label, tab, text) or .jsonl ({\"label\": …, \"text\": …}).");
  }
  return extension == ".jsonl";
}

bool is_utf8(std::string_view text) {
  try {
    return !Json(std::string(text)).dump().empty();
  } catch (const Json::exception&) {
    return false;
  }
}

struct Row {
  std::string label, text;
};

// The rest of what `refuse` says is the file and the line.
using Refuse = std::function<void(const std::string& why)>;

Row row_of_tsv(std::string_view line, const Refuse& refuse) {
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) refuse("has no tab between label and text");
  return {std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))};
}

Row row_of_json(std::string_view line, const Refuse& refuse) {
  Json json;
  try {
    json = fields::parse(line, "it");
  } catch (const std::invalid_argument& error) {
    std::string why = error.what();
    if (why.ends_with('.')) why.pop_back();
    refuse("cannot be read: " + why);
  }
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  if (!has("label") || !has("text")) refuse("is no object with \"label\" and \"text\"");
  const auto& label = json["label"];
  if (!label.is_string() && !label.is_number_integer()) refuse("has a label that is neither a string nor an integer");
  if (!json["text"].is_string()) refuse("has a text that is no string");
  return {label.is_string() ? label.get<std::string>() : label.dump(), json["text"].get<std::string>()};
}

void check_row(const Row& row, const Refuse& refuse) {
  if (row.label.empty()) refuse("has an empty label");
  if (row.text.empty()) refuse("has an empty text");
  if (row.label.size() > longest_label) {
    refuse("has a label of " + std::to_string(row.label.size()) + " bytes; it may have " +
           std::to_string(longest_label) + ", and comes before the text");
  }
  if (!is_utf8(row.label)) refuse("has a label that is not UTF-8, " + quote(row.label));
  if (!is_utf8(row.text)) refuse("has a text that is not UTF-8");
  if (row.label.find('\0') != std::string::npos || row.text.find('\0') != std::string::npos) {
    refuse("has a byte 0, with which sequences are padded; a text may have any other");
  }
}

using Take = std::function<void(const Row& row, const Refuse& refuse)>;

void read_rows(const fs::path& path, const Take& take, const Notify& notify) {
  constexpr std::string_view mark_of_utf8 = "\xef\xbb\xbf";
  constexpr std::int64_t often = 1024;
  const bool json = is_json(path);
  const MappedFile file(map(path));
  const auto all = content(file);
  const auto total = static_cast<std::int64_t>(all.size());
  std::int64_t number = 0;
  const Refuse refuse = [&](const std::string& why) {
    throw std::invalid_argument(at_line(path.string(), number) + " " + why + ".");
  };
  for (std::size_t begin = all.starts_with(mark_of_utf8) ? mark_of_utf8.size() : 0; begin < all.size();) {
    const auto end = std::min(all.find('\n', begin), all.size());
    auto line = all.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = std::min(end + 1, all.size());
    if (notify && number % often == 0) notify(static_cast<std::int64_t>(begin), total, "reading " + path.string());
    ++number;
    if (line.empty()) refuse("is empty");
    const auto row = json ? row_of_json(line, refuse) : row_of_tsv(line, refuse);
    check_row(row, refuse);
    take(row, refuse);
  }
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Labels get numbers as they come and are numbered anew, in their order, when all are known.
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

void number_anew(Prepared& prepared, Numbers& numbers) {
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
      refuse("brings label " + std::to_string(numbers.size()) + "; there may be " + std::to_string(most_labels));
    }
    prepared.train.add(bytes_of(row.text), number);
  };
  read_rows(train, take_train, notify);
  if (prepared.train.size() == 0) throw std::invalid_argument(train.string() + " has no line with a label and a text.");
  number_anew(prepared, numbers);
  if (test.empty()) return prepared;
  const auto take_test = [&](const Row& row, const Refuse& refuse) {
    const auto found = numbers.find(row.label);
    if (found == numbers.end()) {
      refuse("has the label " + quote(row.label) + ", which " + train.string() + " does not have");
    }
    prepared.test.add(bytes_of(row.text), found->second);
  };
  read_rows(test, take_test, notify);
  if (prepared.test.size() == 0) throw std::invalid_argument(test.string() + " has no line with a label and a text.");
  return prepared;
}

std::string fingerprint(const fs::path& train, const fs::path& test) {
  const auto print = [](const fs::path& path) {
    return path.empty() ? "" : (is_json(path) ? "jsonl " : "tsv ") + md5(content(map(path)));
  };
  const nlohmann::ordered_json json = {
      {"task", "text"}, {"version", reader_version}, {"train", print(train)}, {"test", print(test)}};
  return json.dump();
}

}  // namespace hkt::data::text
