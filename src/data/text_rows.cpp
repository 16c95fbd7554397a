// SPDX-License-Identifier: Apache-2.0
// Reading texts from columns and from lines of JSON. A row that cannot be read does not end the file.
#include "data/text_rows.h"

#include <stdexcept>
#include <utility>

#include "columns.h"
#include "files/delimited.h"
#include "files/line_reader.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "labelled_rows.h"
#include "reading.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_line = std::size_t{1} << 26;

std::string_view text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return without_mark({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

class Delimited : public TextRows {
 public:
  Delimited(const fs::path& path, const std::string& column, bool csv)
      : file_(path), records_(text_of(file_), csv ? ',' : '\t', csv) {
    first_ = records_.next();
    if (!first_) throw std::invalid_argument(path.string() + " is empty.");
    if (!first_->trouble.empty()) throw std::invalid_argument(path.string() + ", line 1, " + first_->trouble + ".");
    DataConfig config;
    config.text = column;
    column_ = text_column_of(path, first_->fields, config);
    if (column_.header) first_.reset();
  }

  std::optional<TextRow> next() override {
    if (ended_) return {};
    auto record = first_ ? std::exchange(first_, {}) : records_.next();
    if (!record) return {};
    if (!record->trouble.empty()) {
      ended_ = true;
      return TextRow{"", record->trouble + "."};
    }
    if (record->fields.size() != column_.count) {
      return TextRow{"", "has " + std::to_string(record->fields.size()) + " fields; the first line has " +
                             std::to_string(column_.count) + "."};
    }
    return TextRow{std::move(record->fields[column_.text]), ""};
  }

  std::int64_t bytes() const override { return static_cast<std::int64_t>(records_.position()); }

 private:
  MappedFile file_;
  DelimitedReader records_;
  std::optional<DelimitedReader::Record> first_;
  TextColumn column_;
  bool ended_ = false;  // by a record after which no other can be found
};

class JsonLines : public TextRows {
 public:
  JsonLines(const fs::path& path, std::string key) : lines_(path, longest_line), key_(std::move(key)) {}

  std::optional<TextRow> next() override {
    const auto line = lines_.next();
    if (!line) return {};
    if (line->cut) return TextRow{"", "has more than 64 MiB."};
    const auto text = is_first_ ? without_mark(line->text) : line->text;
    is_first_ = false;
    try {
      const auto json = object_of(text, {key_}, [](const std::string& why) { throw std::invalid_argument(why + "."); });
      if (!json[key_].is_string()) return TextRow{"", "has " + quote(key_) + ", which is not a string."};
      return TextRow{json[key_].get<std::string>(), ""};
    } catch (const std::invalid_argument& error) {
      return TextRow{"", error.what()};
    }
  }

  std::int64_t bytes() const override { return lines_.bytes(); }

 private:
  LineReader lines_;
  std::string key_;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<TextRows> open_texts(const fs::path& file, const std::string& column) {
  return with_file([&]() -> std::unique_ptr<TextRows> {
    switch (form_of(file)) {
      case RowForm::csv:
        return std::make_unique<Delimited>(file, column, true);
      case RowForm::tsv:
        return std::make_unique<Delimited>(file, column, false);
      case RowForm::jsonl:
        return std::make_unique<JsonLines>(file, column);
      case RowForm::folder:
        break;
    }
    throw std::invalid_argument(file.string() + " is a folder; texts by column are in a .csv, .tsv or .jsonl file.");
  });
}

}  // namespace hkt::data
