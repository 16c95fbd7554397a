// A classifier with its optimiser: one step of learning, and what it says of a split.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/batches.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "optimizer.h"

namespace hkt::train {

// Sums over sequences, so that they can be added up.
struct Tally {
  double loss = 0;
  std::int64_t correct = 0, sequences = 0;

  double mean_loss() const { return sequences > 0 ? loss / static_cast<double>(sequences) : 0; }
  double accuracy() const { return sequences > 0 ? static_cast<double>(correct) / static_cast<double>(sequences) : 0; }
};

// What a step leaves behind, on the model's device: to look at it is to wait for the device.
struct StepResult {
  at::Tensor loss;           // mean over the batch
  at::Tensor correct;        // how many
  at::Tensor gradient_norm;  // before it was cut
};

class Learner {
 public:
  // Draws the weights from torch's generator.
  Learner(const Config& config, at::Device device);

  StepResult step(const data::Batch& batch, double learning_rate);

  // Forward and backward of the first block's attention alone, to be timed: the batch's lengths, and random features.
  struct AttentionInput {
    at::Tensor features, lengths;
  };
  AttentionInput attention_input(const data::Batch& batch) const;
  void attention_step(const AttentionInput& input);

  Classifier& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const;

 private:
  at::Device device_;
  bool bfloat16_;
  Classifier model_;
  Optimizer optimizer_;
};

// The logits of every sequence of a split, float32 [size, classes], in the split's order, on the CPU.
struct Predictions {
  at::Tensor logits, labels;
  Tally tally;
};
using Watch = std::function<void(std::int64_t done, std::int64_t total)>;
Predictions evaluate(Classifier& model, const data::Split& split, const Config& config, at::Device device,
                     const Watch& watch = {});

// Whether a model of this config runs in bfloat16 there.
bool uses_bfloat16(const Config& config, at::Device device);

}  // namespace hkt::train
