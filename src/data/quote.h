// Words from outside, as error sentences show them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hkt::data {

// In quotes, short, on one line, and UTF-8 whatever the bytes were.
std::string quote(std::string_view text);

// "path, line 7", the beginning of sentences about a line of a file.
std::string at_line(const std::string& path, std::int64_t line);

}  // namespace hkt::data
