// SPDX-License-Identifier: Apache-2.0
// Base64 as RFC 4648 has it, with padding.
#include "report/packed.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>

namespace hkt::report {

std::string packed(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? bytes[i + j] : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? alphabet[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string packed(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  return packed(std::span(reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()));
}

}  // namespace hkt::report
