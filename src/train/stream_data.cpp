// SPDX-License-Identifier: Apache-2.0
// Training on a stream of tokens: windows at random places, and the model with the lowest loss is the best.
#include <algorithm>
#include <stdexcept>

#include "data/windows.h"
#include "train/language_score.h"
#include "train/training_data.h"

namespace hkt::train {
namespace {

class StreamData : public TrainingData {
 public:
  StreamData(const data::Streams& streams, const Config& config) : streams_(streams), config_(config) {
    check("training", streams.train, config.model.max_length + 1);
    check("validation", streams.validation, 2);
  }

  std::int64_t steps_per_epoch() const override {
    if (config_.train.epoch_steps > 0) return config_.train.epoch_steps;
    const auto tokens = std::ssize(streams_.train.tokens), per_step = config_.train.batch * config_.model.max_length;
    return std::max<std::int64_t>(1, tokens / per_step);
  }

  NextBatch batches(std::int64_t epoch, std::int64_t first) const override {
    const auto begin = epoch * steps_per_epoch();
    const auto queue = std::make_shared<data::WindowQueue>(
        streams_.train, config_.model.max_length, config_.train.batch, static_cast<std::uint64_t>(config_.train.seed),
        begin + first, begin + steps_per_epoch());
    return [queue] { return queue->next(); };
  }

  Validation validate(TransformerImpl& model, at::Device device) const override {
    const auto tally = score(model, streams_.validation, config_, device, {config_.train.validation_tokens}).tally;
    return {tally, tally.quality()};
  }

  bool is_better(const Quality& first, const Quality& second) const override { return first.loss < second.loss; }

  nlohmann::ordered_json description() const override {
    return {{"train_tokens", std::ssize(streams_.train.tokens)},
            {"validation_tokens", std::ssize(streams_.validation.tokens)},
            {"documents", streams_.documents}};
  }

  std::vector<at::Tensor> examples(std::int64_t longest, std::int64_t count) const override {
    return data::drawn_windows(streams_.validation, std::min(config_.model.max_length, longest), count,
                               static_cast<std::uint64_t>(config_.train.seed));
  }

 private:
  static void check(const std::string& name, const data::Stream& stream, std::int64_t least) {
    if (std::ssize(stream.tokens) >= least) return;
    throw std::invalid_argument("the " + name + " part of the data has " + std::to_string(stream.tokens.size()) +
                                " tokens; this model needs at least " + std::to_string(least) +
                                " (model.max_length sets the length of its windows).");
  }

  const data::Streams& streams_;
  Config config_;
};

}  // namespace

std::unique_ptr<TrainingData> training_data(const data::Streams& streams, const Config& config) {
  return std::make_unique<StreamData>(streams, config);
}

}  // namespace hkt::train
