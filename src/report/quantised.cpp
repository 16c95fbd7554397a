// SPDX-License-Identifier: Apache-2.0
// Quantises linearly between the smallest and the largest value.
#include "report/quantised.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace hkt::report {
namespace {

std::string base64(std::span<const std::uint8_t> bytes) {
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

}  // namespace

nlohmann::ordered_json quantised(std::span<const double> values, std::int64_t rows) {
  constexpr double steps = 255;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double width = values.empty() || *high == *low ? 1 : *high - *low;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(values.size());
  for (const double value : values)
    bytes.push_back(static_cast<std::uint8_t>(std::lround((value - *low) / width * steps)));
  return {{"rows", rows},
          {"low", values.empty() ? 0 : *low},
          {"high", values.empty() ? 0 : *low + width},
          {"bytes", base64(bytes)}};
}

}  // namespace hkt::report
