// SPDX-License-Identifier: Apache-2.0
// Lines of a file or a pipe, one after the other, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hkt {

class LineReader {
 public:
  struct Line {
    std::string_view text;  // without its end, LF or CR LF; good until the next call
    bool cut;               // it was longer than `longest`, and its rest was passed over
  };

  LineReader(const std::filesystem::path& path,
             std::size_t longest);            // a regular file; std::runtime_error if it is none
  LineReader(int file, std::size_t longest);  // a descriptor that stays the caller's
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  std::optional<Line> next();  // nothing after the last; throws std::runtime_error where reading fails

  std::int64_t bytes() const { return bytes_; }  // that were read so far

 private:
  bool fill();  // false at the end

  int file_;
  bool owned_;
  std::size_t longest_;
  std::string buffer_, line_;
  std::size_t next_ = 0;  // what is before that in the buffer was given out
  std::int64_t bytes_ = 0;
};

}  // namespace hkt
