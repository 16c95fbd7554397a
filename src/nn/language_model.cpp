// SPDX-License-Identifier: Apache-2.0
// The module LanguageModel: from tokens to the logits of each next token.
#include <ATen/ATen.h>

#include <cmath>

#include "hkt/modules.h"
#include "nn/layer_norm.h"

namespace hkt {
namespace {

// N(0, 0.02²) for every matrix, less for those that write to the residual stream, so that its variance does not grow with the
// number of blocks. Filters and convolutions keep their own start: the mean of their taps, and the previous token.
void initialise_as_gpt2(LanguageModelImpl& model) {
  constexpr double deviation = 0.02;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(model.blocks->size()));
  const at::NoGradGuard no_grad;
  const auto draw = [](torch::nn::Linear& layer, double spread) {
    layer->weight.normal_(0, spread);
    if (layer->bias.defined()) layer->bias.zero_();
  };
  model.embedding->weight.normal_(0, deviation);
  for (const auto& module : *model.blocks) {
    auto& block = *module->as<Block>();
    for (auto& layer : block.attention->query_key) draw(layer, deviation);
    draw(block.attention->value, deviation);
    draw(block.attention->output, residual);
    draw(block.expand, deviation);
    draw(block.contract, residual);
  }
  if (model.head) draw(model.head, deviation);
}

}  // namespace

LanguageModelImpl::LanguageModelImpl(const ModelConfig& config) : TransformerImpl(config) {
  TORCH_CHECK_VALUE(config.kind == ModelKind::language, "model.kind is classifier; LanguageModel needs language.");
  add_blocks();
  if (!config.tied) {
    head = register_module("head",
                           torch::nn::Linear(torch::nn::LinearOptions(config.width, config.vocab).bias(config.biases)));
  }
  initialise_as_gpt2(*this);
}

at::Tensor LanguageModelImpl::logits(const at::Tensor& x) {
  const auto y = layer_norm(x, norm, NormOutput::autocast);
  return head ? head(y) : at::linear(y, embedding->weight);
}

at::Tensor LanguageModelImpl::forward(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) {
  return logits(hidden(tokens, lengths));
}

}  // namespace hkt
