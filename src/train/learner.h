// A classifier with its optimiser: one step of learning, and what it says of a split.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "data/batches.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "optimizer.h"

namespace hkt::train {

class RecordedCuda;

// Sums over sequences, so that they can be added up.
struct Tally {
  double loss = 0;
  std::int64_t correct = 0, sequences = 0;

  double mean_loss() const { return sequences > 0 ? loss / static_cast<double>(sequences) : 0; }
  double accuracy() const { return sequences > 0 ? static_cast<double>(correct) / static_cast<double>(sequences) : 0; }
};

// How a GPU gets its work. Hundreds of small launches take the host longer than they take the GPU, so a step for a
// shape of batch that was there before is recorded and replayed. The bits are the same.
enum class Launches : std::uint8_t { recorded, one_by_one };

class Learner {
 public:
  // Draws the weights from torch's generator.
  Learner(const Config& config, at::Device device, Launches launches = Launches::recorded);
  ~Learner();

  // Gives back float32 [3] on the model's device: the mean loss, how many were right, and the gradient's norm before it
  // was cut. To look at them is to wait for the device.
  at::Tensor step(const data::Batch& batch, double learning_rate);

  // Forward and backward of the first block's attention alone, to be timed, for the batch's lengths and random features.
  std::function<void()> attention_step(const data::Batch& batch);

  Classifier& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const;

 private:
  struct RecordedStep;

  at::Tensor launch_step(const data::Batch& batch);  // of a batch on the device
  RecordedCuda* recorded_before() const;
  at::Tensor replay_step(std::unique_ptr<RecordedStep>& step, const data::Batch& batch);

  at::Device device_;
  bool bfloat16_;
  Launches launches_;
  Classifier model_;
  Optimizer optimizer_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<RecordedStep>> recorded_;  // none: seen once
  RecordedStep* first_recorded_ = nullptr;  // whose memory the others share
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
