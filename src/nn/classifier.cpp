// SPDX-License-Identifier: Apache-2.0
// The module Classifier: from tokens to one row of logits per sequence.
#include <ATen/ATen.h>

#include "hkt/modules.h"
#include "nn/layer_norm.h"
#include "positions.h"

namespace hkt {

ClassifierImpl::ClassifierImpl(const ModelConfig& config)
    : embedding(check(config).vocab, config.width),
      norm(torch::nn::LayerNormOptions({config.width})),
      head(config.width, config.classes),
      config_(config),
      sinusoids_(std::make_shared<positions::Table>()) {
  register_module("embedding", embedding);
  if (config.positions == Positions::learned) {
    constexpr double deviation = 0.02;
    positions = register_parameter("positions", at::randn({config.max_length, config.width}).mul_(deviation));
  }
  register_module("blocks", blocks);
  for (int64_t i = 0; i < config.blocks; ++i) blocks->push_back(Block(config));
  register_module("norm", norm);
  register_module("head", head);
}

void ClassifierImpl::check_inputs(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) const {
  TORCH_CHECK_VALUE(tokens.dim() == 2, "tokens has shape ", tokens.sizes(), "; Classifier needs [batch, length].");
  TORCH_CHECK_VALUE(tokens.scalar_type() == at::kLong, "tokens has dtype ", tokens.scalar_type(),
                    "; Classifier needs int64.");
  const int64_t batch = tokens.size(0), length = tokens.size(1);
  TORCH_CHECK_VALUE(length <= config_.max_length, "tokens has length ", length, "; this Classifier takes at most ",
                    config_.max_length, " (max_length).");
  // Values are checked on the CPU only: reading them would synchronise with a GPU.
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [low, high] = at::aminmax(tokens);
    const int64_t wrong = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
    TORCH_CHECK_VALUE(wrong >= 0 && wrong < config_.vocab, "tokens contains ", wrong, "; this Classifier takes 0 to ",
                      config_.vocab - 1, " (vocab - 1).");
  }
  if (!lengths) return;
  TORCH_CHECK_VALUE(lengths->dim() == 1 && lengths->size(0) == batch, "lengths has shape ", lengths->sizes(),
                    "; Classifier needs [", batch, "], one length per sequence.");
  TORCH_CHECK_VALUE(lengths->scalar_type() == at::kLong || lengths->scalar_type() == at::kInt, "lengths has dtype ",
                    lengths->scalar_type(), "; Classifier needs int64 or int32.");
  TORCH_CHECK_VALUE(lengths->device() == tokens.device(), "lengths is on ", lengths->device(),
                    "; Classifier needs it on the device of tokens, ", tokens.device(), ".");
  if (lengths->is_cpu() && batch > 0) {
    const auto [low, high] = at::aminmax(*lengths);
    const int64_t wrong = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
    TORCH_CHECK_VALUE(wrong >= 0 && wrong <= length, "lengths contains ", wrong,
                      "; it must be from 0 to the length of tokens, ", length, ".");
  }
}

at::Tensor ClassifierImpl::embedded(const at::Tensor& tokens) {
  auto x = embedding(tokens);
  const int64_t length = tokens.size(1);
  if (config_.positions == Positions::learned) x = x + positions.narrow(0, 0, length);
  if (config_.positions == Positions::sinusoidal) {
    x = x + positions::sinusoids(*sinusoids_, length, config_.width, x.options());
  }
  return x;
}

at::Tensor ClassifierImpl::hidden(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) {
  check_inputs(tokens, lengths);
  auto x = at::dropout(embedded(tokens), config_.dropout, is_training());
  for (const auto& block : *blocks) x = block->as<Block>()->forward(x, lengths);
  return x;
}

// [B, width], zeros for a sequence of length 0.
at::Tensor ClassifierImpl::pooled(const at::Tensor& x, const std::optional<at::Tensor>& lengths) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto normed = [&](const at::Tensor& rows) { return layer_norm(rows, norm, NormOutput::float32); };
  if (length == 0) return normed(x).sum(1);
  if (config_.pooling == Pooling::last) {
    if (!lengths) return normed(x.select(1, length - 1));
    const auto last = at::arange(batch, lengths->options()) * length + (*lengths - 1).clamp_min(0);
    return normed(x.flatten(0, 1).index_select(0, last)) * lengths->gt(0).unsqueeze(1);
  }
  if (!lengths) return normed(x).mean(1);
  const auto y = normed(x);
  const auto valid = at::arange(length, lengths->options()).unsqueeze(0).lt(lengths->unsqueeze(1));
  // The mean over valid tokens as one batched product instead of a masked copy and a sum. Autocast would round the shares.
  const auto shares = valid.to(y.scalar_type()).div_(lengths->clamp_min(1).unsqueeze(1));
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::bmm(shares.unsqueeze(1), y).squeeze(1);
}

at::Tensor ClassifierImpl::forward(const at::Tensor& tokens, const std::optional<at::Tensor>& given) {
  const bool convert = given && given->scalar_type() == at::kInt;
  const auto lengths = convert ? std::optional(given->to(at::kLong)) : given;
  return head(pooled(hidden(tokens, lengths), lengths));
}

}  // namespace hkt
