// SPDX-License-Identifier: Apache-2.0
// What a run learns from: labelled sequences, or a stream of tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/stream.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "train/learner.h"

namespace hkt::train {

class TrainingData {
 public:
  using NextBatch = std::function<std::optional<data::Batch>()>;

  virtual ~TrainingData() = default;

  virtual std::int64_t steps_per_epoch() const = 0;
  // The batches of an epoch from number `first` on, prefetched; nothing after the last. They depend on seed and epoch alone.
  virtual NextBatch batches(std::int64_t epoch, std::int64_t first) const = 0;
  struct Validation {
    Tally tally;
    Quality quality;
  };
  virtual Validation validate(TransformerImpl& model, at::Device device) const = 0;
  virtual bool is_better(const Quality& first, const Quality& second) const = 0;
  // Of the classes in the loss, see Learner; undefined for all alike.
  virtual at::Tensor class_weights() const { return {}; }
  // For the first line of the metrics.
  virtual nlohmann::ordered_json description() const = 0;
  // Inputs for the per-epoch theory metrics, [T] each, cut at `longest` tokens, which is also the wanted length; the run's seed
  // decides which.
  virtual std::vector<at::Tensor> examples(std::int64_t longest, std::int64_t count) const = 0;
};

// The data must outlive the object. Throws std::invalid_argument if a split is empty or too short, or if there is only one label.
std::unique_ptr<TrainingData> training_data(const data::Dataset& dataset, const Config& config);
std::unique_ptr<TrainingData> training_data(const data::Streams& streams, const Config& config);

}  // namespace hkt::train
