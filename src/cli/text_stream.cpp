// SPDX-License-Identifier: Apache-2.0
// Holding back bytes until they can be printed.
#include "text_stream.h"

#include <algorithm>
#include <utility>

namespace hkt::cli {
namespace {

// The number of bytes of the character that begins with this one, or 0 if none does.
std::size_t character_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Of the character that `text` begins with: its length if it is complete, 0 if bytes are missing, and `good` whether it is one.
std::size_t next_character(const std::string& text, bool& good) {
  const auto length = character_length(static_cast<unsigned char>(text[0]));
  good = length > 0;
  if (!good) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return 0;
    if (!is_continuation(text[i])) {
      good = false;
      return i;
    }
  }
  const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0U;
  const auto first = static_cast<unsigned char>(text[0]);
  // Longer forms than needed, surrogates, and beyond the last code point.
  good = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second >= 0xa0) && !(first == 0xf0 && second < 0x90) &&
         !(first == 0xf4 && second >= 0x90);
  return length;
}

bool is_control(const std::string& character) {
  const auto first = static_cast<unsigned char>(character[0]);
  const bool c1 = first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
  return c1 || first == 0x7f || (first < 0x20 && first != '\n' && first != '\t');
}

// How many bytes at the end of `text` may be the beginning of `stop`.
std::size_t overlap(const std::string& text, const std::string& stop) {
  for (auto size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.compare(text.size() - size, size, stop, 0, size) == 0) return size;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stop, std::FILE* file, bool terminal)
    : stop_(std::move(stop)), file_(file), terminal_(terminal) {}

void TextStream::write(const std::string& text) {
  const auto before = std::exchange(text_, {});
  const auto stop = std::exchange(stop_, {});
  for (const char byte : text) add(byte);
  text_ = before;
  stop_ = stop;
}

bool TextStream::add(char byte) {
  text_.push_back(byte);
  held_.push_back(byte);
  for (const auto& stop : stop_) {
    if (!text_.ends_with(stop)) continue;
    text_.resize(text_.size() - stop.size());
    held_.resize(held_.size() - std::min(held_.size(), stop.size()));
    return false;
  }
  print(false);
  return true;
}

void TextStream::print(bool all) {
  std::size_t back = 0;
  if (!all) {
    for (const auto& stop : stop_) back = std::max(back, overlap(text_, stop));
  }
  std::string out;
  while (held_.size() > back) {
    if (!terminal_) {
      out.push_back(held_[0]);
      held_.erase(0, 1);
      continue;
    }
    bool good = false;
    auto length = next_character(held_, good);
    if (length == 0 && !all) break;
    if (length == 0) length = held_.size(), good = false;
    if (length > held_.size() - back) break;
    const auto character = held_.substr(0, length);
    out += good && !is_control(character) ? character : "\xef\xbf\xbd";
    held_.erase(0, length);
  }
  if (out.empty()) return;
  last_ = out.back();
  if (file_ == nullptr) return;
  std::fwrite(out.data(), 1, out.size(), file_);
  std::fflush(file_);
}

void TextStream::finish() {
  print(true);
  if (file_ == nullptr || last_ == '\n') return;
  std::fputc('\n', file_);
  std::fflush(file_);
}

}  // namespace hkt::cli
