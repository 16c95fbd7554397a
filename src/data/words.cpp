// SPDX-License-Identifier: Apache-2.0
// Splits a text into words by the ranges in which Unicode keeps letters, marks, ideographs and emoji.
#include "data/words.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace hkt::data {
namespace {

enum class Kind : std::uint8_t { space, letter, inner, mark, single, modifier };

struct Character {
  std::uint32_t code;  // of a byte that is not UTF-8: no code point
  std::size_t begin, end;
  Kind kind;
};

struct Range {
  std::uint32_t first, last;
};

template <std::size_t count>
bool is_in(std::uint32_t code, const std::array<Range, count>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return range.first <= code && code <= range.last; });
}

constexpr std::uint32_t no_code = 0x110000;

// Joined to the emoji before: joiner, variation selectors, skin tones, keycap, tags.
constexpr std::array<Range, 5> modifiers = {
    {{0x200d, 0x200d}, {0xfe00, 0xfe0f}, {0x1f3fb, 0x1f3ff}, {0x20e3, 0x20e3}, {0xe0020, 0xe007f}}};
constexpr std::array<Range, 6> spaces = {
    {{0x09, 0x0d}, {0x20, 0x20}, {0x85, 0xa0}, {0x2000, 0x200b}, {0x2028, 0x202f}, {0x3000, 0x3000}}};
constexpr std::array<Range, 13> marks = {{{0x00, 0x2f},
                                          {0x3a, 0x40},
                                          {0x5b, 0x5e},
                                          {0x60, 0x60},
                                          {0x7b, 0x7f},
                                          {0xa1, 0xa9},
                                          {0xab, 0xb4},
                                          {0xb6, 0xb9},
                                          {0xbb, 0xbf},
                                          {0x2010, 0x206f},
                                          {0x20a0, 0x20cf},
                                          {0x3001, 0x3020},
                                          {0xff01, 0xff0f}}};
// Kana, ideographs; symbols and emoji.
constexpr std::array<Range, 6> singles = {
    {{0x2190, 0x2bff}, {0x3021, 0x30ff}, {0x3400, 0x9fff}, {0xf900, 0xfaff}, {0x1f000, 0x1faff}, {0x20000, 0x3ffff}}};

Kind kind_of(std::uint32_t code) {
  constexpr std::uint32_t apostrophe = 0x27, hyphen = 0x2d, right_quote = 0x2019;
  if (code == apostrophe || code == hyphen || code == right_quote) return Kind::inner;
  if (is_in(code, modifiers)) return Kind::modifier;
  if (is_in(code, spaces)) return Kind::space;
  if (is_in(code, marks)) return Kind::mark;
  return is_in(code, singles) ? Kind::single : Kind::letter;
}

// The character that begins there; a byte by itself where no valid one does.
Character character_at(std::string_view text, std::size_t begin) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const auto first = byte(begin);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  const Character alone{no_code, begin, begin + 1, Kind::letter};
  if (length == 0 || begin + length > text.size()) return alone;
  auto code = length == 1 ? first : first & (0x7fU >> length);
  for (std::size_t i = begin + 1; i < begin + length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return alone;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  return {code, begin, begin + length, kind_of(code)};
}

bool is_flag_letter(std::uint32_t code) { return 0x1f1e6 <= code && code <= 0x1f1ff; }

// Whether the next character goes on with the word whose last character is `last`; `flag_letters` of them end it.
bool goes_on(const Character& last, const Character& next, bool letter_follows, std::size_t flag_letters) {
  constexpr std::uint32_t joiner = 0x200d;
  if (next.kind == Kind::modifier) return true;
  if (last.code == joiner) return next.kind == Kind::single;
  if (is_flag_letter(last.code) && is_flag_letter(next.code)) return flag_letters % 2 == 1;
  if (last.kind == Kind::letter || last.kind == Kind::inner) {
    if (next.kind == Kind::letter) return true;
    if (next.kind == Kind::inner && last.kind == Kind::letter && letter_follows) return true;
  }
  return last.kind == Kind::mark && next.code == last.code;
}

}  // namespace

std::vector<Word> words_of(std::string_view text) {
  std::vector<Character> characters;
  for (std::size_t i = 0; i < text.size(); i = characters.back().end) characters.push_back(character_at(text, i));
  std::vector<Word> words;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    if (characters[i].kind == Kind::space) continue;
    const auto begin = characters[i].begin;
    std::size_t flag_letters = is_flag_letter(characters[i].code) ? 1 : 0;
    // An apostrophe that begins a word stands by itself, as a quotation mark does.
    if (characters[i].kind == Kind::inner) characters[i].kind = Kind::mark;
    for (; i + 1 < characters.size(); ++i) {
      const bool letter_follows = i + 2 < characters.size() && characters[i + 2].kind == Kind::letter;
      if (!goes_on(characters[i], characters[i + 1], letter_follows, flag_letters)) break;
      flag_letters += is_flag_letter(characters[i + 1].code) ? 1 : 0;
      if (characters[i].kind == Kind::mark) characters[i + 1].kind = Kind::mark;
    }
    words.push_back({begin, characters[i].end});
  }
  return words;
}

}  // namespace hkt::data
