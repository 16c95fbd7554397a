// SPDX-License-Identifier: Apache-2.0
// Matrices as one byte per number, so that pages stay small.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace hkt::report {

// {"rows", "low", "high", "bytes"}: byte b of the base64 text stands for low + (high − low)·b/255. Square matrices.
nlohmann::ordered_json quantised(std::span<const double> values, std::int64_t rows);

}  // namespace hkt::report
