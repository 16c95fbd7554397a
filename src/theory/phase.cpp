// SPDX-License-Identifier: Apache-2.0
// How answers depend on where the coarse grids begin, and on the length of the input.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hkt/ops.h"
#include "hkt/theory.h"
#include "theory/walk.h"

namespace hkt::theory {
namespace {

using Projected = HierarchicalAttentionImpl::Projected;

Projected projected_of(HierarchicalAttentionImpl& attention, const at::Tensor& x) {
  return attention.projected(attention.hierarchy(attention.convolution ? attention.convolution(x) : x));
}

// A head's scores of the tokens from `begin` on, of `length` tokens, both multiples of what one row of the coarsest level stands for.
HeadScores scores_between(const Projected& all, const at::Tensor& weights, const ModelConfig& config, std::int64_t head,
                          std::int64_t begin, std::int64_t length) {
  const auto key_head = head / (config.heads / config.key_head_count());
  std::vector<at::Tensor> q, k;
  for (size_t l = 0; l < all.q.size(); ++l) {
    const auto level = static_cast<std::int64_t>(l);
    const auto cut = [&](const at::Tensor& rows, std::int64_t index) {
      return rows[0][index].narrow(0, begin >> level, level_rows(length, level));
    };
    q.push_back(cut(all.q[l], head));
    k.push_back(cut(all.k[l], key_head));
  }
  return head_scores(q, k, weights[head], config.mask == Mask::causal);
}

// Queries from `first` on see no key before it; with a mask none after themselves.
at::Tensor masked_softmax(const at::Tensor& scores, std::int64_t first, bool causal) {
  auto hidden = at::zeros(scores.sizes(), at::kBool);
  hidden.slice(0, first).slice(1, 0, first).fill_(true);
  if (causal) hidden.logical_or_(at::ones(scores.sizes(), at::kBool).triu(1));
  return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(1);
}

// The output of an attention layer, x [1, T, width], with `shift` rows of zeros before its input that are no keys.
at::Tensor attention_at_phase(HierarchicalAttentionImpl& attention, const at::Tensor& x, std::int64_t shift,
                              std::int64_t first) {
  const auto& config = attention.config();
  const auto length = x.size(1), all = length + shift;
  const auto mixed = attention.convolution ? attention.convolution(x) : x;
  const auto levels = attention.projected(attention.hierarchy(at::constant_pad_nd(mixed, {0, 0, shift, 0})));
  const auto values = attention.value(config.convolution_on == ConvolutionOn::qkv ? mixed : x);
  const auto v = values[0].unflatten(1, {-1, config.head_width()});
  const auto weights = attention.weights();
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < config.heads; ++head) {
    const auto scores = combined(scores_between(levels, weights, config, head, 0, all), config.levels)
                            .narrow(0, shift, length)
                            .narrow(1, shift, length);
    const auto own = v.select(1, head / (config.heads / config.key_head_count()));
    heads.push_back(at::mm(masked_softmax(scores, first, config.mask == Mask::causal), own));
  }
  return attention.output(at::cat(heads, 1).unsqueeze(0));
}

double relative_change(const at::Tensor& changed, const at::Tensor& original) {
  const double size = original.abs().max().item<double>();
  return size > 0 ? (changed - original).abs().max().item<double>() / size : 0;
}

double changed_share(const at::Tensor& changed, const at::Tensor& original) {
  return changed.argmax(-1).ne(original.argmax(-1)).to(at::kDouble).mean().item<double>();
}

at::Tensor logits_of_tokens(TransformerImpl& model, const at::Tensor& tokens) {
  auto x = model.embedded(tokens.unsqueeze(0));
  for (const auto& block : *model.blocks) x = block->as<Block>()->forward(x);
  return logits_of(model, x);
}

// The tokens before the first one that some level of a block's queries and keys depends on, for the first token of a copy.
std::int64_t window_before(const ModelConfig& config) {
  const auto convolution = config.short_convolution == Convolution::none ? 0 : config.convolution_taps - 1;
  return config.kernel_size * ((std::int64_t{1} << (config.levels - 1)) - 1) + convolution;
}

// log Z of every query, [heads, T].
at::Tensor log_partition(const Projected& levels, const at::Tensor& weights) {
  const auto [out, lse] = hkt::attention(levels.q, levels.k, at::zeros_like(levels.k[0]), weights, false);
  return lse[0].to(at::kDouble);
}

void compare_scores(LengthEffect& effect, const ModelConfig& config, const at::Tensor& weights, const Projected& once,
                    const Projected& repeated) {
  const auto last = (effect.times - 1) * effect.length;
  for (std::int64_t head = 0; head < config.heads; ++head) {
    const auto sum = [&](const Projected& levels, std::int64_t begin) {
      return combined(scores_between(levels, weights, config, head, begin, effect.length), config.levels);
    };
    effect.score_change = std::max(effect.score_change, relative_change(sum(repeated, 0), sum(once, 0)));
    effect.copy_difference =
        std::max(effect.copy_difference, relative_change(sum(repeated, effect.length), sum(repeated, last)));
  }
}

}  // namespace

at::Tensor logits_at_phase(TransformerImpl& model, const at::Tensor& tokens, std::int64_t shift, std::int64_t window) {
  const at::NoGradGuard no_grad;
  auto x = model.embedded(tokens.unsqueeze(0));
  std::int64_t first = 0;
  for (const auto& module : *model.blocks) {
    auto& block = *module->as<Block>();
    first += window;
    x = block.after_attention(x, attention_at_phase(*block.attention, block.attention_norm(x), shift, first));
  }
  return logits_of(model, x.slice(1, first));
}

std::vector<PhaseEffect> phase_effects(TransformerImpl& model, const at::Tensor& tokens) {
  constexpr std::int64_t all_of_them = 8;
  const auto& config = model.config();
  const auto period = std::int64_t{1} << (config.levels - 1), window = window_before(config);
  std::vector<PhaseEffect> effects;
  if (period == 1 || tokens.size(0) < 2 * window * config.blocks) return effects;
  const auto original = logits_at_phase(model, tokens, 0, window);
  for (std::int64_t shift = 1; shift <= period; shift += period <= all_of_them ? 1 : shift) {
    const auto shifted = logits_at_phase(model, tokens, shift, window);
    effects.push_back({shift, changed_share(shifted, original), relative_change(shifted, original)});
  }
  return effects;
}

std::optional<LengthEffect> length_effect(TransformerImpl& model, const at::Tensor& tokens, std::int64_t times) {
  const auto& config = model.config();
  if (config.positions != Positions::none || config.mask == Mask::causal || times < 2) return {};
  const at::NoGradGuard no_grad;
  LengthEffect effect;
  const auto levels_below = config.levels - 1;
  effect.length = tokens.size(0) >> levels_below << levels_below;
  effect.times = times;
  if (effect.length <= window_before(config)) return {};
  const auto once = tokens.narrow(0, 0, effect.length), repeated = once.repeat({times});
  auto& first = *model.blocks[0]->as<Block>();
  const auto weights = first.attention->weights();
  const auto levels_of = [&](const at::Tensor& input) {
    return projected_of(*first.attention, first.attention_norm(model.embedded(input.unsqueeze(0))));
  };
  const auto short_levels = levels_of(once), long_levels = levels_of(repeated);
  compare_scores(effect, config, weights, short_levels, long_levels);
  const auto growth =
      log_partition(long_levels, weights).narrow(1, 0, effect.length) - log_partition(short_levels, weights);
  effect.dilution = growth.mean().item<double>();
  effect.dilution_deviation = growth.std(false).item<double>();
  const auto original = logits_of_tokens(model, once), longer = logits_of_tokens(model, repeated);
  effect.changed = changed_share(longer, original);
  effect.logit_change = relative_change(longer, original);
  return effect;
}

}  // namespace hkt::theory
