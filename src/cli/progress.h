// SPDX-License-Identifier: Apache-2.0
// Progress of long work on standard error: a bar on a terminal, otherwise a plain line every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hkt::cli {

class Progress {
 public:
  explicit Progress(const std::string& title);
  ~Progress();  // leaves the cursor on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` adds details, such as loss or speed. A total of 0 means unknown. Cheap to call often: drawing is rate-limited.
  void show(std::int64_t done, std::int64_t total, const std::string& note = {});
  // A permanent line; the bar continues below it.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  bool terminal_;
  bool drawn_ = false;
  std::int64_t first_ = -1;  // `done` of the first call: a resumed run starts in the middle
  Clock::time_point begin_, last_;
};

// A bar of 24 characters, filled to this share.
std::string bar(double share);

// The line cut to the terminal's width; each UTF-8 character counts as one column.
std::string fitted(const std::string& line);

// "4.2 MB", "1 min 5 s".
std::string bytes_text(double bytes);
std::string seconds_text(double seconds);

}  // namespace hkt::cli
