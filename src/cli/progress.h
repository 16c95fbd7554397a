// SPDX-License-Identifier: Apache-2.0
// How far a long piece of work is: a bar on a terminal, now and then a plain line elsewhere. Written to standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hkt::cli {

class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();  // leaves the cursor on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` says more, such as a loss or a speed. A total of 0 is one that is not known. Calls may be frequent: few draw.
  void show(std::int64_t done, std::int64_t total, const std::string& note = {});
  // A line that stays; the bar goes on below it.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  bool terminal_;
  bool drawn_ = false;
  std::int64_t first_ = -1;  // what was done when it was first shown: a resumed run begins in the middle
  Clock::time_point begin_, last_;
};

// A bar of 24 characters, of which this share is full.
std::string bar(double share);

// As much of a line as the terminal has room for; characters beyond ASCII count as one.
std::string fitted(const std::string& line);

// "4.2 MB", "1 min 5 s".
std::string bytes_text(double bytes);
std::string seconds_text(double seconds);

}  // namespace hkt::cli
