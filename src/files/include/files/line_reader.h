// SPDX-License-Identifier: Apache-2.0
// Lines of a file or a pipe, one after the other, in bounded memory.
#pragma once

#include <chrono>
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
    std::string_view text;  // without its line ending, LF or CR LF; valid until the next call
    bool cut;               // longer than `longest`; the rest was skipped
  };

  LineReader(const std::filesystem::path& path, std::size_t longest);  // std::runtime_error if it is not a regular file
  LineReader(int file, std::size_t longest);                           // does not close the descriptor
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  std::optional<Line> next();  // empty after the last line; throws std::runtime_error if reading fails

  // Whether next() has bytes to read, or the end of the file, within this time. A signal ends the wait.
  bool wait(std::chrono::milliseconds time) const;

  std::int64_t bytes() const { return bytes_; }  // read so far

 private:
  bool fill();  // false at the end of the file

  int file_;
  bool owned_;
  std::size_t longest_;
  std::string buffer_, line_;
  std::size_t next_ = 0;  // the first byte of buffer_ that is not consumed yet
  std::int64_t bytes_ = 0;
};

}  // namespace hkt
