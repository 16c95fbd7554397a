// SPDX-License-Identifier: Apache-2.0
// Several lines that change in place on a terminal; elsewhere each is printed now and then.
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
  void say(const std::string& line);  // stays, above the changing ones

 private:
  void erase();
  bool terminal_;
  std::size_t drawn_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace hkt::cli
