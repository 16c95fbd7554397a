// SPDX-License-Identifier: Apache-2.0
// What Classifier and LanguageModel share: from tokens to the output of the last block.
#include <ATen/ATen.h>

#include "hkt/modules.h"
#include "positions.h"

namespace hkt {

// The head of the derived model is created between these two functions, so weights are drawn in the order embedding, head,
// positions, blocks.
TransformerImpl::TransformerImpl(const ModelConfig& config)
    : embedding(check(config).vocab, config.width),
      norm(torch::nn::LayerNormOptions({config.width})),
      config_(config),
      sinusoids_(std::make_shared<hkt::positions::Table>()) {
  register_module("embedding", embedding);
}

void TransformerImpl::add_blocks() {
  if (config_.positions == Positions::learned) {
    positions =
        register_parameter("positions", at::randn({config_.max_length, config_.width}).mul_(config_.position_scale));
  }
  register_module("blocks", blocks);
  for (int64_t i = 0; i < config_.blocks; ++i) blocks->push_back(Block(config_));
  register_module("norm", norm);
}

void TransformerImpl::check_inputs(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) const {
  const char* model = config_.kind == ModelKind::language ? "LanguageModel" : "Classifier";
  TORCH_CHECK_VALUE(tokens.dim() == 2, "tokens has shape ", tokens.sizes(), "; ", model, " needs [batch, length].");
  TORCH_CHECK_VALUE(tokens.scalar_type() == at::kLong, "tokens has dtype ", tokens.scalar_type(), "; ", model,
                    " needs int64.");
  const int64_t batch = tokens.size(0), length = tokens.size(1);
  TORCH_CHECK_VALUE(length <= config_.max_length, "tokens has length ", length, "; this ", model, " takes at most ",
                    config_.max_length, " (max_length).");
  // Values are checked on the CPU only: reading them would synchronise with a GPU.
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [low, high] = at::aminmax(tokens);
    const int64_t wrong = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
    TORCH_CHECK_VALUE(wrong >= 0 && wrong < config_.vocab, "tokens contains ", wrong, "; this ", model, " takes 0 to ",
                      config_.vocab - 1, " (vocab - 1).");
  }
  if (!lengths) return;
  TORCH_CHECK_VALUE(lengths->dim() == 1 && lengths->size(0) == batch, "lengths has shape ", lengths->sizes(), "; ",
                    model, " needs [", batch, "], one length per sequence.");
  TORCH_CHECK_VALUE(lengths->scalar_type() == at::kLong || lengths->scalar_type() == at::kInt, "lengths has dtype ",
                    lengths->scalar_type(), "; ", model, " needs int64 or int32.");
  TORCH_CHECK_VALUE(lengths->device() == tokens.device(), "lengths is on ", lengths->device(), "; ", model,
                    " needs it on the device of tokens, ", tokens.device(), ".");
  if (lengths->is_cpu() && batch > 0) {
    const auto [low, high] = at::aminmax(*lengths);
    const int64_t wrong = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
    TORCH_CHECK_VALUE(wrong >= 0 && wrong <= length, "lengths contains ", wrong,
                      "; it must be from 0 to the length of tokens, ", length, ".");
  }
}

at::Tensor TransformerImpl::embedded(const at::Tensor& tokens) {
  auto x = embedding(tokens);
  const int64_t length = tokens.size(1);
  if (config_.positions == Positions::learned) x = x + positions.narrow(0, 0, length);
  if (config_.positions == Positions::sinusoidal) {
    x = x + hkt::positions::sinusoids(*sinusoids_, length, config_.width, x.options());
  }
  return x;
}

at::Tensor TransformerImpl::embedded(const at::Tensor& tokens, const at::Tensor& position, int64_t end) {
  auto x = embedding(tokens);
  const auto added = [&](const at::Tensor& rows) { return x + rows.index_select(0, position.flatten()).view_as(x); };
  if (config_.positions == Positions::learned) return added(positions);
  if (config_.positions != Positions::sinusoidal) return x;
  return added(hkt::positions::sinusoids(*sinusoids_, end, config_.width, x.options()));
}

at::Tensor TransformerImpl::hidden(const at::Tensor& tokens, const std::optional<at::Tensor>& given) {
  check_inputs(tokens, given);
  const bool convert = given && given->scalar_type() != at::kLong;
  const auto lengths = convert ? std::optional(given->to(at::kLong)) : given;
  auto x = at::dropout(embedded(tokens), config_.dropout, is_training());
  for (const auto& block : *blocks) x = block->as<Block>()->forward(x, lengths);
  return x;
}

Transformer create_model(const ModelConfig& config) {
  if (config.kind == ModelKind::language) return LanguageModel(config).ptr();
  return Classifier(config).ptr();
}

}  // namespace hkt
