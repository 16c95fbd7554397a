// SPDX-License-Identifier: Apache-2.0
// Safetensors files without Torch: the names, types, shapes and bytes of the tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files/mapped_file.h"

namespace hkt::safetensors {

enum class Type : std::uint8_t { float64, float32, bfloat16, float16, int64, int32, uint8, boolean };
inline constexpr std::array all_types = {Type::float64, Type::float32, Type::bfloat16, Type::float16,
                                         Type::int64,   Type::int32,   Type::uint8,    Type::boolean};
const char* name_of(Type type);  // as the format spells it: F64, BF16, I64, …
std::size_t size_of(Type type);  // bytes of an element

struct Array {
  std::string name;
  Type type = Type::uint8;
  std::vector<std::int64_t> shape;
  std::span<std::byte> bytes;  // in row-major order
};

struct File {
  std::vector<Array> arrays;  // in file order
  std::map<std::string, std::string> metadata;
  std::string checksum;                // "crc32:" and eight digits; empty if the file has none
  std::shared_ptr<MappedFile> mapped;  // contains the arrays' bytes, which need not be aligned
};

// Writes the file atomically. The arrays are sorted by element size, largest first, so that each is aligned to its elements.
// Throws std::invalid_argument for names that are used twice or are not UTF-8, and std::runtime_error if writing fails.
void write(const std::filesystem::path& path, const std::vector<Array>& arrays,
           const std::map<std::string, std::string>& metadata);

// Trusts nothing in the file: a truncated, damaged, inconsistent or malicious file throws std::runtime_error.
File read(const std::filesystem::path& path);

}  // namespace hkt::safetensors
