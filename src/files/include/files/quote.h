// SPDX-License-Identifier: Apache-2.0
// Makes untrusted text safe to print: names, labels and messages that come from files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hkt {

bool is_utf8(std::string_view text);

// The text on one line and without characters that a terminal acts on: control characters, directional overrides and bytes
// that are not UTF-8 become escapes such as \n, \x1b or \u202e. The rest is unchanged.
std::string printable(std::string_view text);

// Printable, in quotes, and shortened if long.
std::string quote(std::string_view text);

// Whether an untrusted name is safe as a file name: not empty, not too long, printable, without separators or a leading dot.
bool is_plain_name(std::string_view name);

// "path, line 7", the beginning of messages about a line of a file.
std::string at_line(const std::string& path, std::int64_t line);

}  // namespace hkt
