// SPDX-License-Identifier: Apache-2.0
// Numbers in a page as base64: exact, and a third larger than in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace hkt::report {

std::string packed(std::span<const std::uint8_t> bytes);
// float32, little-endian.
std::string packed(std::span<const float> values);

}  // namespace hkt::report
