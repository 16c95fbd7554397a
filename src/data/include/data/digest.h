// SPDX-License-Identifier: Apache-2.0
// MD5, SHA-1 and SHA-256, of which official sites publish one or another. Here they detect damage, not tampering.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hkt::data {

enum class Digest : std::uint8_t { md5, sha1, sha256 };

std::string name_of(Digest kind);  // "MD5", "SHA-1", "SHA-256"

// Which of them this is, by its number of digits. Throws std::invalid_argument if it is none.
Digest kind_of(std::string_view digest);

// Lower-case hexadecimal.
std::string digest(Digest kind, std::string_view bytes);

// Of a file, read in pieces. Throws std::runtime_error if it cannot be read.
std::string digest_of_file(Digest kind, const std::filesystem::path& path);

}  // namespace hkt::data
