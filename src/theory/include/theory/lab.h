// SPDX-License-Identifier: Apache-2.0
// Every claim of the paper, examined on one model and some of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "hkt/config.h"
#include "hkt/modules.h"

namespace hkt::theory {

struct LabOptions {
  std::int64_t gaussian_samples = 256;  // rows of scores for each test of normality
  std::int64_t gaussian_columns = 32;
  std::int64_t seed = 0;  // of the choice of rows
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// The whole examination, as theory.json holds it. `sequences` are the tokens of single inputs, [T] each, without padding.
nlohmann::ordered_json examine(const Classifier& model, const ModelConfig& config,
                               const std::vector<at::Tensor>& sequences, const LabOptions& options = {});

// What changes from epoch to epoch: for each block and head the kernel's spectrum and the smallest eigenvalue of scores,
// for each level Mardia's statistics. Cheap enough to be taken after each epoch.
nlohmann::ordered_json probe(const Classifier& model, const ModelConfig& config,
                             const std::vector<at::Tensor>& sequences);

}  // namespace hkt::theory
