// SPDX-License-Identifier: Apache-2.0
// Texts without labels, for predictions: a column of a .csv or .tsv file, or a key of a .jsonl file, row by row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace hkt::data {

struct TextRow {
  std::string text;
  std::string error;  // why the row has no text, as a sentence without its subject; else nothing
};

class TextRows {
 public:
  virtual ~TextRows() = default;
  virtual std::optional<TextRow> next() = 0;  // empty after the last one
  virtual std::int64_t bytes() const = 0;     // read so far
};

// `column` is a name or a number from 1, or the key of a .jsonl file. Fields are read as those of data.train are. Throws
// std::invalid_argument, in one sentence, for a file that cannot be read or has no such column.
std::unique_ptr<TextRows> open_texts(const std::filesystem::path& file, const std::string& column);

}  // namespace hkt::data
