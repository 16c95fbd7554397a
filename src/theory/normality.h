// SPDX-License-Identifier: Apache-2.0
// Mardia's tests of one head and level, one for each sequence, and their combination.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "hkt/theory.h"

namespace hkt::theory {

// Samples rows of s(l) from each sequence that is long enough; the seed decides which.
class RowSampler {
 public:
  struct Size {
    std::int64_t samples = 256;  // rows of each sequence, or as many as it has
    std::int64_t columns = 32;   // of each row; a level is tested on sequences of at least columns · 2^level tokens
  };

  RowSampler(const std::vector<at::Tensor>& sequences, std::int64_t levels, Size size, std::int64_t seed);

  // The chosen rows of a sequence's scores at a level; undefined if the sequence is too short.
  at::Tensor rows(std::size_t sequence, std::int64_t level, const at::Tensor& scores) const;

 private:
  std::int64_t columns_;
  std::vector<std::vector<at::Tensor>> chosen_;  // by level, by sequence
};

class Normality {
 public:
  void add(const at::Tensor& rows) {
    if (rows.defined()) tests_.push_back(mardia(rows));
  }
  nlohmann::ordered_json to_json(bool with_component) const;

 private:
  std::vector<Mardia> tests_;
};

}  // namespace hkt::theory
