// MD5 as RFC 1321 writes it down.
#include "data/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace hkt::data {
namespace {

constexpr std::size_t block_size = 64;
constexpr int steps = 64;

// floor(2^32 |sin(i + 1)|), i in radians
std::array<std::uint32_t, steps> make_sines() {
  std::array<std::uint32_t, steps> sines = {};
  for (int i = 0; i < steps; ++i) {
    sines[i] = static_cast<std::uint32_t>(std::floor(std::abs(std::sin(i + 1.0)) * 0x1p32));
  }
  return sines;
}

constexpr int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

}  // namespace

void Md5::block(const std::uint8_t* bytes) {
  static const auto sines = make_sines();
  std::array<std::uint32_t, 16> words = {};
  std::memcpy(words.data(), bytes, block_size);  // both are little endian
  auto [a, b, c, d] = state_;
  for (int i = 0; i < steps; ++i) {
    const int round = i / 16;
    const std::uint32_t mixed[] = {(b & c) | (~b & d), (b & d) | (c & ~d), b ^ c ^ d, c ^ (b | ~d)};
    const int word[] = {i, 5 * i + 1, 3 * i + 5, 7 * i};
    const auto sum = a + mixed[round] + sines[i] + words[word[round] % 16];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, shifts[round][i % 4]);
  }
  state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d};
}

void Md5::add(std::string_view bytes) {
  const auto* next = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t left = bytes.size(), filled = size_ % block_size;
  size_ += left;
  while (left > 0) {
    const std::size_t taken = std::min(left, block_size - filled);
    std::memcpy(pending_.data() + filled, next, taken);
    next += taken, left -= taken, filled += taken;
    if (filled < block_size) return;
    block(pending_.data());
    filled = 0;
  }
}

std::string Md5::hex() {
  const std::uint64_t bits = 8 * size_;
  const std::size_t filled = size_ % block_size, length_at = 56;
  std::string end(1 + (length_at + block_size - 1 - filled) % block_size, '\0');
  end[0] = '\x80';
  add(end);
  add({reinterpret_cast<const char*>(&bits), sizeof bits});
  std::string text;
  for (const auto word : state_) {
    for (int byte = 0; byte < 4; ++byte) {
      text += "0123456789abcdef"[word >> (8 * byte + 4) & 15];
      text += "0123456789abcdef"[word >> 8 * byte & 15];
    }
  }
  return text;
}

std::string md5(std::string_view bytes) {
  Md5 sum;
  sum.add(bytes);
  return sum.hex();
}

std::string md5_of_file(const std::filesystem::path& path) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> bytes(piece);
  Md5 sum;
  while (stream) {
    stream.read(bytes.data(), piece);
    sum.add({bytes.data(), static_cast<std::size_t>(stream.gcount())});
  }
  if (!stream.eof()) throw std::runtime_error(path.string() + " cannot be read.");
  return sum.hex();
}

}  // namespace hkt::data
