// SPDX-License-Identifier: Apache-2.0
// A trained run and its data, as the commands that look at trained models need them.
#pragma once

#include <ATen/Device.h>

#include <string>

#include "data/dataset.h"
#include "train/checkpoint.h"

namespace hkt::cli {

struct LoadedRun {
  train::RunDirectory directory;
  train::TrainedModel trained;
  data::Dataset dataset;

  const Config& config() const { return trained.identity.config; }
};

// Shows progress, and says on standard error what had to be mended. Throws std::invalid_argument where the data is no longer
// what the model was trained with.
LoadedRun load_run(const std::string& folder, at::Device device);

// train, validation or test; throws std::invalid_argument for another name, or where there is none.
const data::Split& split_of(const data::Dataset& dataset, const std::string& name);

}  // namespace hkt::cli
