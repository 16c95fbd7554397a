// SPDX-License-Identifier: Apache-2.0
// Several status lines, updated in place on a terminal; otherwise printed every few seconds.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hkt::cli {

class LiveLines {
 public:
  LiveLines();
  ~LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  void show(const std::vector<std::string>& lines);
  void say(const std::string& line);  // a permanent line above the status lines

 private:
  void erase();
  bool terminal_;
  std::size_t drawn_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace hkt::cli
