// SPDX-License-Identifier: Apache-2.0
// A trained run and its data, for the commands that analyse trained models.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/stream.h"
#include "train/checkpoint.h"

namespace hkt::cli {

struct LoadedRun {
  train::RunDirectory directory;
  train::TrainedModel trained;
  data::Dataset dataset;  // of a classifier
  data::Streams streams;  // of a language model

  const Config& config() const { return trained.identity.config; }
  bool is_language() const { return config().model.kind == ModelKind::language; }
};

// Shows progress and prints warnings on standard error. Throws std::invalid_argument if the data's labels are no longer
// those the model was trained with.
LoadedRun load_run(const std::string& folder, at::Device device);

// The architecture of a trained run. Throws std::invalid_argument if there is no model that can be read.
ModelConfig model_of_run(const std::string& folder);

// Throws std::invalid_argument, in one sentence, for a model of another attention than hkt, which the command does not know.
void require_hkt(const LoadedRun& run, const std::string& command);

// train, validation or test; throws std::invalid_argument for another name or a missing test split.
const data::Split& split_of(const data::Dataset& dataset, const std::string& name);
const data::Stream& split_of(const data::Streams& streams, const std::string& name);

// Inputs of a model from a split, [T] each, at most max_length tokens, drawn by the seed: sequences, balanced by label and
// preferably of the wanted length, or windows of a stream, of at most 1,024 tokens.
struct Inputs {
  std::int64_t count = 8, wanted_length = 1, seed = 0;
};
std::vector<at::Tensor> inputs_of(const LoadedRun& run, const std::string& split, const Inputs& inputs);

}  // namespace hkt::cli
