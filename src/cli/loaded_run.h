// SPDX-License-Identifier: Apache-2.0
// A trained run and its data, for the commands that analyse trained models.
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

// Shows progress and prints warnings on standard error. Throws std::invalid_argument if the data's labels are no longer
// those the model was trained with.
LoadedRun load_run(const std::string& folder, at::Device device);

// train, validation or test; throws std::invalid_argument for another name or a missing test split.
const data::Split& split_of(const data::Dataset& dataset, const std::string& name);

}  // namespace hkt::cli
