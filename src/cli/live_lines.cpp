// SPDX-License-Identifier: Apache-2.0
// Status lines updated in place with ANSI escape sequences.
#include "live_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include "print.h"
#include "progress.h"

namespace hkt::cli {
namespace {

constexpr auto plain_interval = std::chrono::seconds(10);

}  // namespace

LiveLines::LiveLines() : terminal_(::isatty(STDERR_FILENO) != 0), last_(std::chrono::steady_clock::now()) {}

LiveLines::~LiveLines() { erase(); }

void LiveLines::erase() {
  if (drawn_ > 0) print_error(fmt::format("\033[{}A\r\033[J", drawn_));
  drawn_ = 0;
}

void LiveLines::show(const std::vector<std::string>& lines) {
  if (!terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < plain_interval) return;
    last_ = now;
    for (const auto& line : lines) print_error(line + "\n");
    return;
  }
  erase();
  for (const auto& line : lines) print_error(fitted(line) + "\n");
  drawn_ = lines.size();
}

void LiveLines::say(const std::string& line) {
  erase();
  print_error(line + "\n");
}

}  // namespace hkt::cli
