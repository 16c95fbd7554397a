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
      expand(torch::nn::LinearOptions(config.width, config.feedforward).bias(config.biases)),
      contract(torch::nn::LinearOptions(config.feedforward, config.width).bias(config.biases)),
      dropout_(config.dropout) {
  register_module("attention_norm", attention_norm);
  register_module("attention", attention);
  register_module("feedforward_norm", feedforward_norm);
  register_module("expand", expand);
  register_module("contract", contract);
}

at::Tensor BlockImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& lengths) {
  return after_attention(x, attention->forward(layer_norm(x, attention_norm, NormOutput::autocast), lengths));
}

at::Tensor BlockImpl::after_attention(const at::Tensor& input, const at::Tensor& attended) {
  const auto dropped = [&](const at::Tensor& x) { return at::dropout(x, dropout_, is_training()); };
  const auto x = input + dropped(attended);
  return x + dropped(contract(at::gelu(expand(layer_norm(x, feedforward_norm, NormOutput::autocast)))));
}

}  // namespace hkt
