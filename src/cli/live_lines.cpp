// Lines that change, by the control sequences of terminals.
#include "live_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "progress.h"

namespace hkt::cli {
namespace {

constexpr auto plain_interval = std::chrono::seconds(10);

}  // namespace

LiveLines::LiveLines() : terminal_(::isatty(STDERR_FILENO) != 0), last_(std::chrono::steady_clock::now()) {}

LiveLines::~LiveLines() { erase(); }

void LiveLines::erase() {
  if (drawn_ > 0) fmt::print(stderr, "\033[{}A\r\033[J", drawn_);
  drawn_ = 0;
}

void LiveLines::show(const std::vector<std::string>& lines) {
  if (!terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < plain_interval) return;
    last_ = now;
    for (const auto& line : lines) fmt::print(stderr, "{}\n", line);
    return;
  }
  erase();
  for (const auto& line : lines) fmt::print(stderr, "{}\n", fitted(line));
  drawn_ = lines.size();
  std::fflush(stderr);
}

void LiveLines::say(const std::string& line) {
  erase();
  fmt::print(stderr, "{}\n", line);
}

}  // namespace hkt::cli
