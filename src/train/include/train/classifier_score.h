// SPDX-License-Identifier: Apache-2.0
// What a classifier's predictions are worth: by class, as probabilities, and where they are worst.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "train/learner.h"

namespace hkt::train {

struct ClassScore {
  std::int64_t sequences = 0, predicted = 0, correct = 0;  // with this label; said to have it; both

  std::optional<double> recall() const;     // none for a label that no sequence has
  std::optional<double> precision() const;  // none for a label that is never predicted
  std::optional<double> f1() const;         // none for both
};

// The sequences whose most probable class has a probability, the confidence, above `from` and at most `to`.
struct ConfidenceBin {
  double from, to;
  std::int64_t sequences;
  double confidence, accuracy;  // means; 0 if there are none
};

struct Mistake {
  std::int64_t sequence, label, predicted;
  double probability, predicted_probability;  // of either
};

struct ClassifierScore {
  std::vector<ClassScore> classes;
  std::vector<std::map<std::int64_t, std::int64_t>> confusion;  // by label: how often which class was predicted
  std::optional<double> macro_f1;                               // the mean over the classes that have one
  std::vector<ConfidenceBin> confidence;                        // ten of equal width
  double calibration_error = 0;   // the mean distance between confidence and accuracy of a bin, by its sequences
  std::vector<Mistake> mistakes;  // those whose label was given the least probability, the worst first
};

ClassifierScore score(const Predictions& predictions, std::size_t most_mistakes);

}  // namespace hkt::train
