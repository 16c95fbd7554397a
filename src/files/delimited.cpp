// SPDX-License-Identifier: Apache-2.0
// Splits a text into records and fields.
#include "files/delimited.h"

#include <algorithm>
#include <array>

namespace hkt {
namespace {

constexpr std::size_t most_fields = 10'000;

std::string number_of(const DelimitedReader::Record& record) { return std::to_string(record.fields.size()); }

}  // namespace

std::optional<DelimitedReader::Record> DelimitedReader::next() {
  if (next_ >= text_.size()) return {};
  Record record;
  record.line = line_;
  while (read_field(record)) {
    if (record.fields.size() < most_fields) continue;
    record.trouble = "has more than " + std::to_string(most_fields) + " fields";
    break;
  }
  return record;
}

bool DelimitedReader::read_field(Record& record) {
  if (quotes_ && next_ < text_.size() && text_[next_] == '"') {
    read_quoted(record);
    return record.trouble.empty() && pass_separator(record);
  }
  const std::array<char, 2> ends = {separator_, '\n'};
  const auto end = std::min(text_.find_first_of({ends.data(), ends.size()}, next_), text_.size());
  auto field = text_.substr(next_, end - next_);
  const bool last = end == text_.size() || text_[end] == '\n';
  if (last && field.ends_with('\r')) field.remove_suffix(1);
  record.fields.emplace_back(field);
  next_ = end;
  return pass_separator(record);
}

// The field that begins with the quote at next_; afterwards next_ is behind its last quote.
void DelimitedReader::read_quoted(Record& record) {
  auto& field = record.fields.emplace_back();
  ++next_;
  while (true) {
    const auto quote = text_.find('"', next_);
    if (quote == std::string_view::npos) {
      record.trouble = "opens a quote in field " + number_of(record) + " that is never closed";
      return;
    }
    const auto piece = text_.substr(next_, quote - next_);
    field.append(piece);
    line_ += std::count(piece.begin(), piece.end(), '\n');
    next_ = quote + 1;
    if (next_ == text_.size() || text_[next_] != '"') return;
    field.push_back('"');
    ++next_;
  }
}

// Passes what ends a field; false if the record ends here, too.
bool DelimitedReader::pass_separator(Record& record) {
  if (next_ == text_.size()) return false;
  if (text_[next_] == separator_) {
    ++next_;
    return true;
  }
  const auto rest = text_.substr(next_);
  for (const std::string_view end : {"\n", "\r\n"}) {
    if (!rest.starts_with(end)) continue;
    next_ += end.size();
    ++line_;
    return false;
  }
  if (rest == "\r") {
    next_ = text_.size();
    return false;
  }
  record.trouble = "has text behind the closing quote of field " + number_of(record) +
                   "; a quote inside a quoted field is written twice";
  return false;
}

}  // namespace hkt
