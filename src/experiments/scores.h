// SPDX-License-Identifier: Apache-2.0
// The test scores of a model's runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "row.h"
#include "train/language_score.h"

namespace hkt::experiments {

// What a model's runs reached on the test split, seed by seed.
struct Scores {
  std::vector<double> values;                 // accuracies in %, or bits per byte
  std::vector<at::Tensor> correct;            // classifiers: which test sequences are classified correctly
  std::vector<train::PositionLoss> position;  // language models: sums over the seeds
};

Scores scores_of(const Row& row);

}  // namespace hkt::experiments
