// SPDX-License-Identifier: Apache-2.0
// The module Classifier: from tokens to one row of logits per sequence.
#include <ATen/ATen.h>

#include "hkt/modules.h"
#include "nn/layer_norm.h"

namespace hkt {

ClassifierImpl::ClassifierImpl(const ModelConfig& config)
    : TransformerImpl(config), head(torch::nn::LinearOptions(config.width, config.classes).bias(config.biases)) {
  add_blocks();
  register_module("head", head);
}

// [B, width], zeros for a sequence of length 0.
at::Tensor ClassifierImpl::pooled(const at::Tensor& x, const std::optional<at::Tensor>& lengths) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto normed = [&](const at::Tensor& rows) { return layer_norm(rows, norm, NormOutput::float32); };
  if (length == 0) return normed(x).sum(1);
  if (config().pooling == Pooling::last) {
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
