// SPDX-License-Identifier: Apache-2.0
// Progress bars.
#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "files/quote.h"
#include "print.h"

namespace hkt::cli {
namespace {

constexpr auto redraw = std::chrono::milliseconds(100);
constexpr auto plain_line = std::chrono::seconds(10);

std::size_t columns() {
  winsize size = {};
  constexpr std::size_t usual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual;
}

}  // namespace

std::string bar(double share) {
  constexpr int width = 24;
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  std::string text;
  for (int i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

std::string fitted(const std::string& line) {
  std::size_t room = columns() - 1, end = 0;
  const auto continues = [&](std::size_t i) {
    return i < line.size() && (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80;
  };
  for (; end < line.size() && room > 0; --room) {
    do ++end;
    while (continues(end));
  }
  return line.substr(0, end);
}

Progress::Progress(const std::string& title)
    : title_(printable(title)),
      terminal_(::isatty(STDERR_FILENO) != 0),
      begin_(Clock::now()),
      last_(terminal_ ? begin_ - redraw : begin_) {}

Progress::~Progress() {
  if (drawn_) print_error("\n");
}

void Progress::show(std::int64_t done, std::int64_t total, const std::string& note) {
  if (first_ < 0) first_ = done;
  const auto now = Clock::now();
  const bool last = total > 0 && done >= total;
  if (now - last_ < (terminal_ ? Clock::duration(redraw) : Clock::duration(plain_line)) && !(last && terminal_)) return;
  last_ = now;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  const double passed = std::chrono::duration<double>(now - begin_).count();
  const double left =
      done > first_ ? passed * static_cast<double>(total - done) / static_cast<double>(done - first_) : 0;
  std::string text = total > 0 ? fmt::format("{:3.0f} %", 100 * share) : std::string();
  if (!note.empty()) text += "  " + printable(note);
  if (left > 0 && passed > 1) text += "  " + seconds_text(left) + " left";
  if (terminal_) {
    print_error("\r\033[K" + fitted(title_ + " " + (total > 0 ? bar(share) + " " : "") + text));
    drawn_ = true;
  } else {
    print_error(title_ + " " + text + "\n");
  }
}

void Progress::say(const std::string& line) {
  print_error((drawn_ ? "\r\033[K" : "") + printable(line) + "\n");
  drawn_ = false;
}

std::string bytes_text(double bytes) {
  constexpr double step = 1000;
  const char* units[] = {"bytes", "kB", "MB", "GB"};
  std::size_t unit = 0;
  while (bytes >= step && unit < 3) bytes /= step, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string seconds_text(double seconds) {
  constexpr int minute = 60, hour = 3600;
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < minute) return fmt::format("{} s", whole);
  if (whole < hour) return fmt::format("{} min {} s", whole / minute, whole % minute);
  return fmt::format("{} h {} min", whole / hour, whole % hour / minute);
}

}  // namespace hkt::cli
