// SPDX-License-Identifier: Apache-2.0
// How much of the machine a training step uses: the model's arithmetic over what the machine does in a large matrix product.
#pragma once

#include <ATen/core/Tensor.h>

#include "hkt/config.h"

namespace hkt::train {

// Floating-point operations of a training step for each token of a language model: two for every multiply-add of the forward
// pass, twice as many for the backward pass. Products of matrices only; attention under the causal mask sees half of the window
// on average, and the scores of level l cost 1/4^l of level 0's.
double training_operations_per_token(const ModelConfig& model);

class Throughput {
 public:
  Throughput() = default;
  // Times a few large products in the precision of the run, about a tenth of a second.
  Throughput(const Config& config, at::Device device);

  // The share of that rate which the model's operations have; 0 if nothing was measured.
  double utilisation(double tokens_per_second) const;

 private:
  double operations_per_token_ = 0, peak_ = 0;  // peak: operations a second
};

}  // namespace hkt::train
