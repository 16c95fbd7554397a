// SPDX-License-Identifier: Apache-2.0
// A classifier with its optimiser: one step of learning, and what it says of a split.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "data/batches.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "train/optimizer.h"

namespace hkt::train {

class GraphedStep;

// Sums over sequences, so that they can be added up.
struct Tally {
  double loss = 0;
  std::int64_t correct = 0, sequences = 0;

  double mean_loss() const { return sequences > 0 ? loss / static_cast<double>(sequences) : 0; }
  double accuracy() const { return sequences > 0 ? static_cast<double>(correct) / static_cast<double>(sequences) : 0; }
};

// How a GPU gets its work. Hundreds of small launches take the host longer than they take the GPU, so a step for a
// shape of batch that was there before is captured as a CUDA graph and replayed. The bits are the same.
enum class CudaGraphs : std::uint8_t { on, off };

// What one step gave, on the model's device as it was computed: to look at it is to wait for the device.
class StepResult {
 public:
  StepResult() = default;
  StepResult(const at::Tensor& mean_loss, const at::Tensor& correct, const at::Tensor& gradient_norm);

  // Somebody else's copy of the same, which later steps leave alone.
  StepResult clone() const;
  void copy_from(const StepResult& other);

  struct Values {
    double mean_loss, correct, gradient_norm;  // correct: how many were right; the norm before it was cut
  };
  Values wait() const;
  static std::vector<Values> wait_for(const std::vector<StepResult>& results);  // one wait for all

 private:
  at::Tensor numbers_;  // float32, in the order of Values
};

class Learner {
 public:
  // Draws the weights from torch's generator.
  Learner(const Config& config, at::Device device, CudaGraphs graphs = CudaGraphs::on);
  ~Learner();

  StepResult step(const data::Batch& batch, double learning_rate);

  // Forward and backward of the first block's attention alone, to be timed, for the batch's lengths and random features.
  std::function<void()> attention_step(const data::Batch& batch);

  Classifier& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const;

 private:
  struct ShapeGraph;

  StepResult launch_step(const data::Batch& batch);  // of a batch on the device
  GraphedStep* shared_memory_graph() const;
  StepResult replay_step(std::unique_ptr<ShapeGraph>& step, const data::Batch& batch);

  at::Device device_;
  bool bfloat16_;
  CudaGraphs graphs_used_;
  Classifier model_;
  Optimizer optimizer_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<ShapeGraph>> graphs_;  // none: seen once
  ShapeGraph* first_graph_ = nullptr;  // whose memory the others share
};

// The logits of every sequence of a split, float32 [size, classes], in the split's order, on the CPU.
struct Predictions {
  at::Tensor logits, labels;
  Tally tally;
};
using Watch = std::function<void(std::int64_t done, std::int64_t total)>;
Predictions evaluate(Classifier& model, const data::Split& split, const Config& config, at::Device device,
                     const Watch& watch = {});

// How this config's batches are made.
data::Shape batch_shape(const Config& config);

// Whether a model of this config runs in bfloat16 there.
bool uses_bfloat16(const Config& config, at::Device device);

}  // namespace hkt::train
