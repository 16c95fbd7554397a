// SPDX-License-Identifier: Apache-2.0
// The module Block: pre-norm attention and a pre-norm feed-forward network, each with a residual connection.
#include <ATen/ATen.h>

#include "hkt/modules.h"
#include "nn/layer_norm.h"

namespace hkt {

BlockImpl::BlockImpl(const ModelConfig& config)
    : attention_norm(torch::nn::LayerNormOptions({check(config).width})),
      feedforward_norm(torch::nn::LayerNormOptions({config.width})),
      attention(config),
      expand(config.width, config.feedforward),
      contract(config.feedforward, config.width),
      dropout_(config.dropout) {
  register_module("attention_norm", attention_norm);
  register_module("attention", attention);
  register_module("feedforward_norm", feedforward_norm);
  register_module("expand", expand);
  register_module("contract", contract);
}

at::Tensor BlockImpl::forward(const at::Tensor& input, const std::optional<at::Tensor>& lengths) {
  const auto dropped = [&](const at::Tensor& x) { return at::dropout(x, dropout_, is_training()); };
  const auto normed = [](const at::Tensor& x, torch::nn::LayerNorm& norm) {
    return layer_norm(x, norm, NormOutput::autocast);
  };
  const auto x = input + dropped(attention->forward(normed(input, attention_norm), lengths));
  return x + dropped(contract(at::gelu(expand(normed(x, feedforward_norm)))));
}

}  // namespace hkt
