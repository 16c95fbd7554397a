// SPDX-License-Identifier: Apache-2.0
// AdamW: its schedule, its state by the names of the parameters, one step.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hkt/config.h"
#include "hkt/safetensors.h"

namespace hkt::train {

// Rises from 0 over the first warmup · steps steps, then falls to 0 as half a cosine. `step` counts from 0.
double learning_rate(const TrainConfig& config, std::int64_t step, std::int64_t steps);

// Weight decay is for matrices alone: not for biases, norms and α, which weigh things against each other.
class Optimizer {
 public:
  Optimizer(const torch::nn::Module& module, const TrainConfig& config);

  void set_learning_rate(double rate);

  // Cuts the gradients to config.gradient_norm, updates the parameters and forgets the gradients. Gives back the norm
  // that was there, a scalar on the parameters' device. A norm that is not finite makes the parameters so.
  at::Tensor step();

  NamedTensors state() const;
  // Takes what state() gave; throws std::runtime_error where a tensor is missing or has another shape.
  void restore(const NamedTensors& state);

 private:
  struct Group {
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, means, squares, steps;
    double weight_decay = 0;
  };
  void add(Group& group, const std::string& name, const at::Tensor& parameter);

  TrainConfig config_;
  at::Tensor learning_rate_;  // where the parameters are, so that a CUDA graph reads the present one
  Group matrices_, others_;
};

}  // namespace hkt::train
