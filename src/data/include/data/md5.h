// SPDX-License-Identifier: Apache-2.0
// MD5, which the official sites publish for their archives. It detects damage, not tampering.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace hkt::data {

// Lower-case hexadecimal.
std::string md5(std::string_view bytes);

// Of a file, read in pieces. Throws std::runtime_error if it cannot be read.
std::string md5_of_file(const std::filesystem::path& path);

}  // namespace hkt::data
