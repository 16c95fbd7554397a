// SPDX-License-Identifier: Apache-2.0
// Reading rows of label and text: lines with tabs, CSV, lines of JSON, folders of files.
#include "labelled_rows.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "columns.h"
#include "files/delimited.h"
#include "files/line_reader.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "text_files.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_label = 256;
constexpr std::size_t longest_text = std::size_t{1} << 26;  // and longest line
constexpr std::int64_t often = 1024;                        // rows between two reports of progress

// A text may be any bytes but zeros; a label is also a name.
void check_row(const Row& row, const Refuse& refuse) {
  if (row.label.empty()) refuse("has an empty label");
  if (row.text.empty()) refuse("has an empty text");
  if (row.label.size() > longest_label) {
    refuse("has a label of " + std::to_string(row.label.size()) + " bytes; it may have at most " +
           std::to_string(longest_label) + " (the label comes before the text)");
  }
  if (row.text.size() > longest_text) refuse("has a text of more than 64 MiB");
  if (!is_utf8(row.label)) refuse("has a label that is not UTF-8, " + quote(row.label));
  if (row.label.find('\0') != std::string::npos || row.text.find('\0') != std::string::npos) {
    refuse("contains the byte 0, which is reserved for padding");
  }
}

std::string skipped_header(const fs::path& path) {
  return "the first line of " + path.string() + " names its columns and is skipped";
}

// ---- a line for each row

Row row_of_tsv(std::string_view line, const Refuse& refuse) {
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) refuse("has no tab between label and text");
  return {std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))};
}

Row row_of_json(std::string_view line, const DataConfig& config, const Refuse& refuse) {
  const std::string label_key = config.label.empty() ? "label" : config.label;
  const std::string text_key = config.text.empty() ? "text" : config.text;
  const auto json = object_of(line, {label_key, text_key}, refuse);
  const auto& label = json[label_key];
  if (!label.is_string() && !label.is_number_integer()) refuse("has a label that is neither a string nor an integer");
  if (!json[text_key].is_string()) refuse("has a text that is not a string");
  return {label.is_string() ? label.get<std::string>() : label.dump(), json[text_key].get<std::string>()};
}

bool is_header(const Row& row, Presence header) {
  if (header != Presence::automatic) return header == Presence::yes;
  return names_labels(row.label) && names_texts(row.text);
}

void read_lines(const fs::path& path, const DataConfig& config, const TakeRow& take, const Notify& notify,
                std::vector<std::string>& notices) {
  const bool json = form_of(path) == RowForm::jsonl;
  LineReader lines(path, longest_text);
  const auto total = static_cast<std::int64_t>(fs::file_size(path));
  std::int64_t number = 0;
  const Refuse refuse = [&](const std::string& why) {
    throw std::invalid_argument(at_line(path.string(), number) + " " + why + ".");
  };
  while (auto line = lines.next()) {
    const auto text = number == 0 ? without_mark(line->text) : line->text;
    if (notify && number % often == 0) notify(lines.bytes(), total, "reading " + path.string());
    ++number;
    if (line->cut) refuse("has more than 64 MiB");
    if (text.empty()) refuse("is empty");
    const auto row = json ? row_of_json(text, config, refuse) : row_of_tsv(text, refuse);
    if (number == 1 && !json && is_header(row, config.header)) {
      notices.push_back(skipped_header(path) + ".");
      continue;
    }
    check_row(row, refuse);
    take(row, refuse);
  }
}

// ---- columns

// What the user should know about how the columns were found.
void add_notice(const fs::path& path, const std::vector<std::string>& first, const Columns& columns,
                const DataConfig& config, std::vector<std::string>& notices) {
  if (columns.header) {
    notices.push_back(skipped_header(path) + "; labels are in " + quote(first[columns.label]) + ", texts in " +
                      quote(first[columns.text]) + ".");
  } else if (config.header == Presence::automatic && config.label.empty() && config.text.empty()) {
    notices.push_back("the first line of " + path.string() +
                      " is taken as an example, label first; if it names the columns, set data.header=yes.");
  }
}

Row row_of(DelimitedReader::Record& record, const Columns& columns, const Refuse& refuse) {
  if (!record.trouble.empty()) refuse(record.trouble);
  if (record.is_empty()) refuse("is empty");
  if (record.fields.size() != columns.count) {
    refuse("has " + std::to_string(record.fields.size()) + " fields; the first line has " +
           std::to_string(columns.count));
  }
  return {std::move(record.fields[columns.label]), std::move(record.fields[columns.text])};
}

void read_columns(const fs::path& path, const DataConfig& config, const TakeRow& take, const Notify& notify,
                  std::vector<std::string>& notices) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const auto text = without_mark({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const bool csv = form_of(path) == RowForm::csv;
  const bool quotes = config.quotes == Presence::automatic ? csv : config.quotes == Presence::yes;
  DelimitedReader records(text, csv ? ',' : '\t', quotes);
  Columns columns;
  std::int64_t number = 0, line = 0;
  const Refuse refuse = [&](const std::string& why) {
    throw std::invalid_argument(at_line(path.string(), line) + " " + why + ".");
  };
  while (auto record = records.next()) {
    line = record->line;
    if (notify && number % often == 0) {
      notify(static_cast<std::int64_t>(records.position()), std::ssize(text), "reading " + path.string());
    }
    if (++number == 1 && record->trouble.empty() && !record->is_empty()) {
      columns = columns_of(path, record->fields, config);
      add_notice(path, record->fields, columns, config, notices);
      if (columns.header) continue;
    }
    const auto row = row_of(*record, columns, refuse);
    check_row(row, refuse);
    take(row, refuse);
  }
}

// A .tsv without further settings is label, tab, text, and further tabs belong to the text.
bool has_columns(RowForm form, const DataConfig& config) {
  if (form == RowForm::csv) return true;
  return form == RowForm::tsv &&
         (!config.text.empty() || !config.label.empty() || config.quotes != Presence::automatic);
}

// ---- folders

std::string text_of(const fs::path& path, const Refuse& refuse) {
  if (fs::file_size(path) > longest_text) refuse("has a text of more than 64 MiB");
  auto text = read_file(path);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return std::string(without_mark(text));
}

void read_folder(const fs::path& folder, const TakeRow& take, const Notify& notify) {
  const auto classes = classes_in(folder);
  std::int64_t done = 0, total = 0;
  for (const auto& one : classes) total += std::ssize(one.paths);
  for (const auto& [label, paths] : classes) {
    for (const auto& path : paths) {
      const Refuse refuse = [&](const std::string& why) {
        throw std::invalid_argument(path.string() + " " + why + ".");
      };
      if (notify && done++ % often == 0) notify(done, total, "reading " + folder.string());
      const Row row = {label, text_of(path, refuse)};
      check_row(row, refuse);
      take(row, refuse);
    }
  }
}

}  // namespace

RowForm form_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return RowForm::folder;
  const auto extension = path.extension();
  if (extension == ".csv") return RowForm::csv;
  if (extension == ".tsv") return RowForm::tsv;
  if (extension == ".jsonl") return RowForm::jsonl;
  throw std::invalid_argument(path.string() + " has the extension " + quote(extension.string()) +
                              "; it must be .csv, .tsv (label, tab, text), .jsonl ({\"label\": …, \"text\": …}) or a "
                              "folder of .txt files by class.");
}

std::vector<ClassFiles> classes_in(const fs::path& folder) {
  std::vector<fs::path> inside;
  std::error_code error, ignored;  // a link that leads nowhere is no folder
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool hidden = entry.path().filename().string().starts_with('.');
    if (entry.is_directory(ignored) && !hidden) inside.push_back(entry.path());
  }
  if (inside.empty() && error) {
    throw std::invalid_argument(folder.string() + " cannot be read: " + error.message() + ".");
  }
  if (inside.empty()) {
    throw std::invalid_argument(folder.string() +
                                " has no folder in it; there must be one for each class, with .txt files.");
  }
  std::sort(inside.begin(), inside.end());
  std::vector<ClassFiles> classes;
  for (const auto& path : inside)
    classes.push_back({path.filename().string(), text_files(path.string(), "*.txt").paths});
  return classes;
}

void read_rows(const fs::path& path, const DataConfig& config, const TakeRow& take, const Notify& notify,
               std::vector<std::string>& notices) {
  const auto form = form_of(path);
  if (form == RowForm::folder) return read_folder(path, take, notify);
  if (has_columns(form, config)) return read_columns(path, config, take, notify, notices);
  read_lines(path, config, take, notify, notices);
}

}  // namespace hkt::data
