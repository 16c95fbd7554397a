// SPDX-License-Identifier: Apache-2.0
// Records of CSV and TSV files: fields between separators, in quotes where RFC 4180 allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hkt {

// A record ends with LF or CR LF. With quotes, a field that begins with one ends at the next single one; inside, separators
// and line ends are text, and two quotes mean one. A quote elsewhere is text, which is more than RFC 4180 allows.
class DelimitedReader {
 public:
  struct Record {
    std::vector<std::string> fields;  // at least one
    std::int64_t line = 0;            // where it begins; the first is 1
    std::string trouble;              // why it cannot be read, as the end of a sentence; nothing after it can either

    bool is_empty() const { return fields.size() == 1 && fields.front().empty(); }
  };

  DelimitedReader(std::string_view text, char separator, bool quotes)
      : text_(text), separator_(separator), quotes_(quotes) {}  // the text must outlive the reader

  std::optional<Record> next();  // empty after the last one

  std::size_t position() const { return next_; }  // bytes read so far

 private:
  bool read_field(Record& record);  // false: it was the last one of its record
  void read_quoted(Record& record);
  bool pass_separator(Record& record);

  std::string_view text_;
  char separator_;
  bool quotes_;
  std::size_t next_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace hkt
