// SPDX-License-Identifier: Apache-2.0
// What a linear model of byte n-grams reaches in seconds: a model that took minutes should be better.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace hkt::train {

struct LinearScore {
  std::int64_t correct = 0, sequences = 0;  // on validation
  std::int64_t trained_on = 0;              // fewer than there are, where all would take long

  double accuracy() const { return sequences > 0 ? static_cast<double>(correct) / static_cast<double>(sequences) : 0; }
};

// The linear model of a table: logistic regression on the logarithm of how often n-grams of at most `gram` tokens, 1 to 4, occur in the
// first `longest` tokens, trained on all sequences in an order that the seed decides, with a table in which they hardly ever share a
// place.
struct LinearSettings {
  std::int64_t longest = 1024;
  int gram = 4;
  double rate = 0.1;
  std::uint64_t seed = 0;
};
struct LinearTestScore {
  LinearScore validation, test;
  std::vector<bool> correct;  // of each sequence of the test split
};
LinearScore linear_validation_score(const data::Dataset& dataset, const LinearSettings& settings);
LinearTestScore linear_test_score(const data::Dataset& dataset, const LinearSettings& settings);

// Logistic regression on which n-grams of 1 to 4 bytes a text has, hashed; of each text its first `longest` bytes. The same
// data gives the same score. At most a few seconds.
LinearScore linear_baseline(const data::Dataset& dataset, std::int64_t longest);

}  // namespace hkt::train
