// SPDX-License-Identifier: Apache-2.0
// Training on labelled sequences: an epoch is a pass over them, and the most accurate model is the best; with weights of the
// classes, as they count in the loss.
#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "data/dataset.h"
#include "files/quote.h"
#include "train/training_data.h"

namespace hkt::train {
namespace {

void check(const data::Dataset& dataset) {
  if (dataset.labels.size() == 1) {
    throw std::invalid_argument("every sequence of the data has the label " + quote(dataset.labels.front()) +
                                "; training needs at least two labels.");
  }
  if (dataset.train.size() > 0 && dataset.validation.size() > 0) return;
  throw std::invalid_argument("the data has " + std::to_string(dataset.train.size()) + " training and " +
                              std::to_string(dataset.validation.size()) +
                              " validation sequences; training needs both (data.validation sets the share held back).");
}

class LabelledData : public TrainingData {
 public:
  LabelledData(const data::Dataset& dataset, const Config& config)
      : dataset_(dataset), config_(config), shape_(batch_shape(config)) {
    check(dataset);
  }

  std::int64_t steps_per_epoch() const override {
    return (dataset_.train.size() + config_.train.batch - 1) / config_.train.batch;
  }

  NextBatch batches(std::int64_t epoch, std::int64_t first) const override {
    const auto seed = static_cast<std::uint64_t>(config_.train.seed);
    auto order = data::training_order(dataset_.train, shape_, seed, epoch);
    auto shape = shape_;
    shape.random_starts = config_.train.random_start;
    shape.draw = (seed << 32) + static_cast<std::uint64_t>(epoch);  // both are below 2^30
    const auto queue =
        std::make_shared<data::BatchQueue>(dataset_.train, std::move(order), shape, static_cast<std::size_t>(first));
    return [queue] { return queue->next(); };
  }

  Validation validate(TransformerImpl& model, at::Device device) const override {
    const auto predictions = evaluate(model, dataset_.validation, config_, device);
    auto quality = predictions.tally.quality();
    if (const auto weights = class_weights(); weights.defined()) {
      const auto counts = weights.index_select(0, predictions.labels);
      const auto correct = predictions.logits.argmax(1).eq(predictions.labels);
      quality.weighted_accuracy = (counts * correct).sum().item<double>() / counts.sum().item<double>();
    }
    return {predictions.tally, quality};
  }

  bool is_better(const Quality& first, const Quality& second) const override {
    return first.weighted_accuracy > second.weighted_accuracy ||
           (first.weighted_accuracy == second.weighted_accuracy && first.loss < second.loss);
  }

  // Inverse to the number of the class's training sequences; a class without any has no weight that could matter.
  at::Tensor class_weights() const override {
    if (config_.train.class_weights == ClassWeights::none) return {};
    std::vector<double> counts(dataset_.labels.size());
    for (std::int64_t i = 0; i < dataset_.train.size(); ++i)
      ++counts[static_cast<std::size_t>(dataset_.train.label(i))];
    const auto present = std::count_if(counts.begin(), counts.end(), [](double count) { return count > 0; });
    const auto mean = static_cast<double>(dataset_.train.size()) / static_cast<double>(present);
    for (auto& count : counts) count = count > 0 ? mean / count : 1;
    return at::tensor(counts, at::kDouble);
  }

  nlohmann::ordered_json description() const override {
    return {{"train_sequences", dataset_.train.size()},
            {"validation_sequences", dataset_.validation.size()},
            {"cut_sequences", data::count_cut(dataset_.train, shape_.max_length)}};
  }

  std::vector<at::Tensor> examples(std::int64_t longest, std::int64_t count) const override {
    longest = std::min(longest, config_.model.max_length);
    return data::balanced_sequences(dataset_.validation, {.max_length = longest,
                                                          .count = count,
                                                          .wanted_length = longest,
                                                          .seed = static_cast<std::uint64_t>(config_.train.seed)});
  }

 private:
  const data::Dataset& dataset_;
  Config config_;
  data::Shape shape_;
};

}  // namespace

std::unique_ptr<TrainingData> training_data(const data::Dataset& dataset, const Config& config) {
  return std::make_unique<LabelledData>(dataset, config);
}

}  // namespace hkt::train
