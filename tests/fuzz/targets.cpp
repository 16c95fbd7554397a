// SPDX-License-Identifier: Apache-2.0
// The list of targets, and the repair of safetensors files.
#include "targets.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    auto both = reader_targets();
    for (const auto& target : command_targets()) both.push_back(target);
    return both;
  }();
  return all;
}

std::string repaired_safetensors(const std::string& input) {
  std::string bytes = input;
  constexpr std::size_t prefix = 8, digits = 8;
  if (bytes.size() < prefix) return bytes;
  // The header ends where its braces close for the last time before the numbers begin, if they still do.
  const auto end = bytes.rfind("}}");
  if (end != std::string::npos && end > prefix) {
    const std::uint64_t header = std::min(bytes.size(), (end + 2 + 7) / 8 * 8) - prefix;
    std::memcpy(bytes.data(), &header, prefix);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), prefix);
  const std::string label = "\"checksum\":\"crc32:";
  const auto place = bytes.find(label);
  if (length > bytes.size() - prefix || place == std::string::npos || place + label.size() + digits > bytes.size())
    return bytes;
  const auto sum_at = place + label.size();
  bytes.replace(sum_at, digits, "00000000");
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + prefix), bytes.size() - prefix);
  char text[digits + 1];
  std::snprintf(text, sizeof text, "%08lx", static_cast<unsigned long>(sum));
  return bytes.replace(sum_at, digits, text);
}

}  // namespace fuzz
