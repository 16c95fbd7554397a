// SPDX-License-Identifier: Apache-2.0
// Words from outside, made safe to print: names, labels and messages that came out of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hkt {

bool is_utf8(std::string_view text);

// The same text on one line and without a character that a terminal obeys: control characters, directional overrides and
// bytes that are not UTF-8 become escapes such as \n, \x1b or \u202e. All else stays as it is.
std::string printable(std::string_view text);

// Printable, in quotes, and short.
std::string quote(std::string_view text);

// Whether a name from a file may name a file here: not empty, not too long, without separators and steps such as "..".
bool is_plain_name(std::string_view name);

// "path, line 7", the beginning of sentences about a line of a file.
std::string at_line(const std::string& path, std::int64_t line);

}  // namespace hkt
