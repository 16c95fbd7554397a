// SPDX-License-Identifier: Apache-2.0
// Examines every claim of the paper on one model and some of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "hkt/model_config.h"
#include "hkt/modules.h"

namespace hkt::theory {

struct LabOptions {
  std::int64_t gaussian_samples = 256;  // rows of scores of one sequence for each test of normality
  std::int64_t gaussian_columns = 32;
  std::int64_t seed = 0;  // of the row sampling and of constructed modules
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// The complete examination, as stored in theory.json. `sequences` are the tokens of single inputs, [T] each, without padding.
nlohmann::ordered_json examine(const TransformerImpl& model, const std::vector<at::Tensor>& sequences,
                               const LabOptions& options = {});

// Per-epoch theory metrics: for each block and head the kernel's spectrum and the smallest eigenvalue of the scores, and for
// each level its share and Mardia's statistics. Cheap enough to run after each epoch.
nlohmann::ordered_json probe(const TransformerImpl& model, const std::vector<at::Tensor>& sequences);

}  // namespace hkt::theory
