// SPDX-License-Identifier: Apache-2.0
// Decodes UTF-8 and escapes text, character by character.
#include "files/quote.h"

#include <array>
#include <cstdio>

namespace hkt {
namespace {

// One character: its code point, its number of bytes, and whether these are valid UTF-8.
struct Character {
  char32_t code;
  std::size_t bytes;
  bool valid;
};

Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};  // overlong encodings are invalid
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return {lead, 1, false};
  char32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {lead, 1, false};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < least[bytes] || code > 0x10ffff || surrogate) return {lead, 1, false};
  return {code, bytes, true};
}

// C0, DEL, C1, line and paragraph separators, the byte order mark, and characters that change the direction of text.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f || code == 0x061c ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

// The first character of a text, as it is or escaped.
std::string shown(const Character& character, std::string_view text) {
  if (character.valid && !is_control(character.code)) return std::string(text.substr(0, character.bytes));
  switch (character.code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  std::array<char, 8> escape = {};
  std::snprintf(escape.data(), escape.size(), character.code < 0x100 ? "\\x%02x" : "\\u%04x",
                static_cast<unsigned>(character.code));
  return escape.data();
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto character = first_of(text);
    if (!character.valid) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto character = first_of(text);
    result += shown(character, text);
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::string quote(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string result = "\"";
  while (!text.empty() && result.size() <= longest) {
    const auto character = first_of(text);
    result += character.code == '"' ? "\\\"" : shown(character, text);
    text.remove_prefix(character.bytes);
  }
  return result + (text.empty() ? "\"" : "…\"");
}

bool is_plain_name(std::string_view name) {
  constexpr std::size_t longest = 128;
  return !name.empty() && name.size() <= longest && name.find_first_of("/\\") == std::string_view::npos &&
         !name.starts_with('.') && printable(name) == name;
}

std::string at_line(const std::string& path, std::int64_t line) { return path + ", line " + std::to_string(line); }

}  // namespace hkt
