// SPDX-License-Identifier: Apache-2.0
// Finding columns by name, by number, or by the usual names.
#include "columns.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <stdexcept>

#include "files/quote.h"
#include "reading.h"

namespace hkt::data {
namespace {

bool is_one_of(std::string word, const std::set<std::string>& words) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return words.contains(word);
}

using Names = std::vector<std::string>;
using IsUsual = bool (*)(const std::string&);

std::optional<std::size_t> number_of(const std::string& text, std::size_t count) {
  std::size_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size() || number < 1 || number > count) return {};
  return number - 1;
}

bool has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_header(const Names& first, const DataConfig& config) {
  if (config.header != Presence::automatic) return config.header == Presence::yes;
  if (config.text.empty() && config.label.empty()) {
    return std::any_of(first.begin(), first.end(), names_labels) &&
           std::any_of(first.begin(), first.end(), names_texts);
  }
  // Numbers that are no names leave the first record an example.
  const auto is_number = [&](const std::string& given) { return number_of(given, SIZE_MAX) && !has(first, given); };
  return (!config.text.empty() && !is_number(config.text)) || (!config.label.empty() && !is_number(config.label)) ||
         (is_header(first, DataConfig()));
}

class Finder {
 public:
  Finder(const std::filesystem::path& path, const Names& first, bool header)
      : path_(path), first_(first), header_(header) {}

  // The column that the user named; nullopt if none was named.
  std::optional<std::size_t> given(const std::string& key, const std::string& name) const {
    if (name.empty()) return {};
    return named(key, name);
  }

  // The column of this name or number.
  std::size_t named(const std::string& key, const std::string& name) const {
    if (header_ && has(first_, name)) {
      if (std::count(first_.begin(), first_.end(), name) > 1) refuse("has several columns named " + quote(name));
      return std::find(first_.begin(), first_.end(), name) - first_.begin();
    }
    if (const auto number = number_of(name, first_.size())) return *number;
    refuse("has no column " + quote(name) + " (" + key + "); " + what_there_is());
  }

  // The one column with a usual name other than `taken`.
  std::optional<std::size_t> usual(IsUsual is_usual, std::optional<std::size_t> taken) const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; header_ && i < first_.size(); ++i) {
      if (i == taken || !is_usual(first_[i])) continue;
      if (found) return {};
      found = i;
    }
    return found;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(path_.string() + " " + why + ".");
  }

  std::string what_there_is() const {
    return header_ ? "its columns are " + listed(first_)
                   : "its first line has " + std::to_string(first_.size()) + " fields and names no columns";
  }

 private:
  const std::filesystem::path& path_;
  const Names& first_;
  bool header_;
};

}  // namespace

bool names_labels(const std::string& word) {
  return is_one_of(word, {"label", "labels", "class", "category", "target", "sentiment"});
}

bool names_texts(const std::string& word) {
  return is_one_of(word, {"text", "texts", "sentence", "review", "content", "comment", "document", "input"});
}

Columns columns_of(const std::filesystem::path& path, const Names& first, const DataConfig& config) {
  const bool header = is_header(first, config);
  const Finder finder(path, first, header);
  auto label = finder.given("data.label", config.label), text = finder.given("data.text", config.text);
  if (!label) label = finder.usual(names_labels, text);
  if (!text) text = finder.usual(names_texts, label);
  if (first.size() == 2) {  // then one of them says which the other is, and without any the label comes first
    if (!label) label = text ? 1 - *text : 0;
    if (!text) text = 1 - *label;
  }
  const auto found = [&](std::optional<std::size_t> column, const std::string& key) {
    if (!column) finder.refuse("needs " + key + " to say which column that is; " + finder.what_there_is());
    return *column;
  };
  const Columns columns{header, found(label, "data.label"), found(text, "data.text"), first.size()};
  if (columns.label == columns.text)
    finder.refuse("cannot have its labels and its texts in the same column, " + quote(config.text));
  return columns;
}

TextColumn text_column_of(const std::filesystem::path& path, const Names& first, const DataConfig& config) {
  const bool header = is_header(first, config);
  return {header, Finder(path, first, header).named("the text", config.text), first.size()};
}

}  // namespace hkt::data
