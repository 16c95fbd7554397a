// SPDX-License-Identifier: Apache-2.0
// Safetensors files as bytes: names, types, shapes and where the numbers lie. What is made of them is the caller's affair.
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
  std::span<std::byte> bytes;  // row by row
};

struct File {
  std::vector<Array> arrays;  // as they lie in the file
  std::map<std::string, std::string> metadata;
  std::string checksum;                // "crc32:" and eight digits; empty where there is none
  std::shared_ptr<MappedFile> mapped;  // which the arrays' bytes are part of; an array may begin at any address
};

// Whole or not at all. The arrays are reordered, widest elements first, so that each is aligned to its own element.
// Throws std::invalid_argument for names that are there twice or not UTF-8, std::runtime_error where the disk fails.
void write(const std::filesystem::path& path, std::vector<Array> arrays,
           const std::map<std::string, std::string>& metadata);

// Believes nothing of what it reads: a file that is cut, damaged, mixed up or malicious throws std::runtime_error.
File read(const std::filesystem::path& path);

}  // namespace hkt::safetensors
