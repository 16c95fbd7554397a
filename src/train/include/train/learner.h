// SPDX-License-Identifier: Apache-2.0
// A model with its optimiser: training steps, and predictions for a split.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "data/batches.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "train/optimizer.h"

namespace hkt {
class GraphedStep;
}

namespace hkt::train {

// What a model is judged by on validation.
struct Quality {
  double accuracy = 0, loss = 0;
  double weighted_accuracy = 0;  // each sequence counts as its class does in the loss
};

// Sums over predictions, one for each sequence or for each token, not means, so that tallies can be added.
struct Tally {
  double loss = 0;
  std::int64_t correct = 0, predictions = 0;

  double mean_loss() const { return predictions > 0 ? loss / static_cast<double>(predictions) : 0; }
  double accuracy() const {
    return predictions > 0 ? static_cast<double>(correct) / static_cast<double>(predictions) : 0;
  }
  Quality quality() const { return {accuracy(), mean_loss(), accuracy()}; }
  double bits() const { return mean_loss() / std::numbers::ln2; }  // per byte, of a language model
};

// Whether training steps run as CUDA graphs. Launching hundreds of small kernels takes the host longer than they run, so the
// second step of a batch shape is captured as a graph, which is then replayed. The results are bit-identical.
enum class CudaGraphs : std::uint8_t { on, off };

// The result of one step, on the model's device; reading it waits for the device.
class StepResult {
 public:
  StepResult() = default;
  StepResult(const at::Tensor& mean_loss, const at::Tensor& correct, const at::Tensor& gradient_norm);

  // A copy that later steps do not overwrite.
  StepResult clone() const;
  void copy_from(const StepResult& other);

  struct Values {
    double mean_loss, correct, gradient_norm;  // correct: a count; gradient_norm: before clipping
  };
  Values wait() const;
  static std::vector<Values> wait_for(const std::vector<StepResult>& results);  // one wait for all

 private:
  at::Tensor numbers_;  // float32, in the order of Values
};

class Learner {
 public:
  // Initialises the weights with torch's default generator.
  Learner(const Config& config, at::Device device, CudaGraphs graphs = CudaGraphs::on);
  ~Learner();

  // Weights of the classes in the loss, [classes], of mean 1 over the training data. Undefined: all count alike.
  void set_class_weights(const at::Tensor& weights);

  StepResult step(const data::Batch& batch, double learning_rate);

  // For timing: forward and backward of only the first block's attention, on random features with the batch's lengths.
  std::function<void()> attention_step(const data::Batch& batch);

  const Transformer& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const;

 private:
  struct ShapeGraph;

  StepResult launch_step(const data::Batch& batch);                                    // the batch is on the device
  std::pair<at::Tensor, at::Tensor> backward(const data::Batch& batch, double share);  // weighted loss, and correct
  GraphedStep* shared_memory_graph() const;
  StepResult replay_step(std::unique_ptr<ShapeGraph>& step, const data::Batch& batch);

  at::Device device_;
  bool bfloat16_;
  std::int64_t accumulate_;
  CudaGraphs graphs_used_;
  Transformer model_;
  Optimizer optimizer_;
  at::Tensor class_weights_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<ShapeGraph>> graphs_;  // nullptr: seen once
  ShapeGraph* first_graph_ = nullptr;  // the others share its memory pool
};

// The logits of a model for a batch on its device, float32.
at::Tensor logits_of(TransformerImpl& model, const data::Batch& batch, bool bfloat16);
data::Batch on_device(const data::Batch& batch, at::Device device);

// A classifier's logits of every sequence of a split, float32 [size, classes], in the split's order, on the CPU; without the first
// `skip` tokens of each, of which one always remains.
struct Predictions {
  at::Tensor logits, labels;
  Tally tally;
};
using Watch = std::function<void(std::int64_t done, std::int64_t total)>;
Predictions evaluate(TransformerImpl& model, const data::Split& split, const Config& config, at::Device device,
                     const Watch& watch = {}, std::int64_t skip = 0);

// The shape of this config's batches.
data::Shape batch_shape(const Config& config);

// Whether a model of this config runs in bfloat16 on this device.
bool uses_bfloat16(const Config& config, at::Device device);

}  // namespace hkt::train
