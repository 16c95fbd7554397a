// SPDX-License-Identifier: Apache-2.0
// ListOps in text files: a line is a label, a tab and an expression.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/packed.h"

namespace hkt::data::listops {

struct Agreement {
  std::int64_t lines = 0, agreeing = 0;
  std::string first_other;  // a sentence about the first line whose label differs from the value of its expression
};

// Evaluates every line, with or without parentheses; the file may be compressed. Throws std::invalid_argument, in one
// sentence with file and line, for a malformed line.
Agreement compare_labels(const std::filesystem::path& path);

void write_file(const std::filesystem::path& path, const PackedPart& part);

}  // namespace hkt::data::listops
