// MD5 (RFC 1321), by which the official homes' archives are known. It finds damage; against an enemy it is no proof.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hkt::data {

class Md5 {
 public:
  void add(std::string_view bytes);
  std::string hex();  // of all that was added; after it nothing can be

 private:
  void block(const std::uint8_t* bytes);

  std::array<std::uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<std::uint8_t, 64> pending_ = {};
  std::uint64_t size_ = 0;
};

std::string md5(std::string_view bytes);

// Of a file, read in pieces. Throws std::runtime_error if it cannot be read.
std::string md5_of_file(const std::filesystem::path& path);

}  // namespace hkt::data
