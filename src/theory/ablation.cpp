// SPDX-License-Identifier: Apache-2.0
// Forward passes without a level or without a part of the input.
#include "theory/ablation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "theory/walk.h"

namespace hkt::theory {
namespace {

// The output of a block's attention, the scores of one level being zero.
at::Tensor attended_without(HierarchicalAttentionImpl& attention, const at::Tensor& x, std::int64_t level) {
  const auto mixed = attention.convolution ? attention.convolution(x) : x;
  auto projected = attention.projected(attention.hierarchy(mixed));
  auto& q = projected.q[static_cast<std::size_t>(level)];
  q = at::zeros_like(q);
  return attention.attended(projected, attention.config().convolution_on == ConvolutionOn::qkv ? mixed : x);
}

at::Tensor without(const at::Tensor& tokens, const Unit& unit, std::optional<std::int64_t> replacement) {
  const auto positions = at::tensor(unit, at::kLong);
  if (replacement) return tokens.index_fill(0, positions, *replacement);
  return tokens.masked_select(at::ones_like(tokens, at::kBool).index_fill(0, positions, false));
}

// The answers to sequences of various lengths, [sequences, classes or vocab].
at::Tensor last_answers(TransformerImpl& model, const std::vector<at::Tensor>& sequences) {
  std::int64_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size(0));
  const auto count = std::ssize(sequences);
  const auto tokens = at::zeros({count, longest}, at::kLong), lengths = at::empty({count}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& sequence = sequences[static_cast<std::size_t>(i)];
    tokens[i].narrow(0, 0, sequence.size(0)).copy_(sequence);
    lengths[i] = sequence.size(0);
  }
  auto logits = model.forward(tokens, lengths);
  if (logits.dim() == 3) logits = logits.index({at::arange(count, at::kLong), lengths - 1});
  return at::log_softmax(logits, 1);
}

}  // namespace

at::Tensor log_probabilities(TransformerImpl& model, const at::Tensor& tokens) {
  return at::log_softmax(model.forward(tokens.unsqueeze(0))[0], -1);
}

at::Tensor log_probabilities_without_level(TransformerImpl& model, const at::Tensor& tokens, std::int64_t level) {
  auto x = model.embedded(tokens.unsqueeze(0));
  for (const auto& module : *model.blocks) {
    auto& block = *module->as<Block>();
    x = block.after_attention(x, attended_without(*block.attention, block.attention_norm(x), level));
  }
  return at::log_softmax(logits_of(model, x), -1);
}

at::Tensor log_probabilities_without_units(TransformerImpl& model, const at::Tensor& tokens,
                                           const std::vector<Unit>& units, std::optional<std::int64_t> replacement) {
  constexpr std::int64_t tokens_at_once = 8192;  // bounds the memory of activations
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, tokens_at_once / tokens.size(0)));
  std::vector<at::Tensor> answers;
  for (std::size_t first = 0; first < units.size(); first += step) {
    std::vector<at::Tensor> sequences;
    for (std::size_t i = first; i < std::min(units.size(), first + step); ++i)
      sequences.push_back(without(tokens, units[i], replacement));
    answers.push_back(last_answers(model, sequences));
  }
  return at::cat(answers);
}

}  // namespace hkt::theory
