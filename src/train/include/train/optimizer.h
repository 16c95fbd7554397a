// SPDX-License-Identifier: Apache-2.0
// AdamW and its learning-rate schedule; the optimiser's state is keyed by parameter name.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hkt/config.h"
#include "hkt/safetensors.h"

namespace hkt::train {

// Linear warmup over the first warmup · steps steps, then cosine decay to the share final_rate. `step` counts from 0.
double learning_rate(const TrainConfig& config, std::int64_t step, std::int64_t steps);

// Weight decay applies to matrices only, not to biases, norms and α (whose softmax gives the level weights).
class Optimizer {
 public:
  Optimizer(const torch::nn::Module& module, const TrainConfig& config);

  void set_learning_rate(double rate);

  // Clips the gradients to config.gradient_norm, updates the parameters and resets the gradients. Returns the norm before
  // clipping, a scalar on the parameters' device. If it is not finite, neither are the parameters afterwards.
  at::Tensor step();

  NamedTensors state() const;
  // Restores the result of state(); throws std::runtime_error if a tensor is missing or has another shape.
  void restore(const NamedTensors& state);

 private:
  struct Group {
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, means, squares, steps;
    double weight_decay = 0;
  };
  void add(Group& group, const std::string& name, const at::Tensor& parameter);

  TrainConfig config_;
  at::Tensor learning_rate_;  // on the parameters' device, so that a CUDA graph reads the current value
  Group matrices_, others_;
};

}  // namespace hkt::train
