// SPDX-License-Identifier: Apache-2.0
// What the readers of texts share: unreadable files, the byte order mark, lines of JSON.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_fields.h"

namespace hkt::data {

// An unreadable file is a wrong argument of the user here, hence std::invalid_argument.
template <typename Work>
auto with_file(const Work& work) try {
  return work();
} catch (const std::runtime_error& error) {
  throw std::invalid_argument(error.what());
}

// The text without the byte order mark of UTF-8, if it begins with one.
std::string_view without_mark(std::string_view text);

// Names from a file for a message: in quotes, safe to print, and not too many.
std::string listed(const std::vector<std::string>& names);

// Throws an error that names the file and the line.
using Refuse = std::function<void(const std::string& why)>;

// The object on a line of a .jsonl file; refuses what is not JSON or not an object with these keys.
fields::Json object_of(std::string_view line, const std::vector<std::string>& keys, const Refuse& refuse);

}  // namespace hkt::data
