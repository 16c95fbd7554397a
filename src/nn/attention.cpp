// SPDX-License-Identifier: Apache-2.0
// The module HierarchicalAttention: the levels, their queries and keys, and one call of hkt::attention, or of a peer. Projections
// are written as [B, T, 2, heads, head width], and the operator reads them through strides, without a copy.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <cmath>

#include "hkt/modules.h"
#include "hkt/ops.h"
#include "peers/peers.h"
#include "positions.h"

namespace hkt {
namespace {

torch::nn::Linear plain_linear(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

// Channels of all key heads.
int64_t key_width(const ModelConfig& config) { return config.key_head_count() * config.head_width(); }

// How the heads of projected rows are cut: queries, then keys unless these are computed from the queries.
std::vector<int64_t> head_parts(const ModelConfig& config) {
  const bool folded = config.psd == Psd::cone && config.positions != Positions::rotary;  // see query_key_weight
  if (config.psd == Psd::free || folded) return {config.heads, config.key_head_count()};
  return {config.heads};
}

std::pair<at::Tensor, at::Tensor> with_keys(const HierarchicalAttentionImpl& attention,
                                            const std::vector<at::Tensor>& parts, int64_t level) {
  const auto& q = parts.front();
  if (parts.size() > 1) return {q, parts.back()};
  return {q, attention.config().psd == Psd::cone ? at::matmul(q, attention.cone(level).transpose(1, 2)) : q};
}

// A container for submodules and parameters with numbered names (filters.1, query_key.0).
std::shared_ptr<torch::nn::Module> group() { return std::make_shared<torch::nn::Module>(); }

// Under autocast several operators would each cast the same x, so it is cast once here.
at::Tensor autocast_once(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

}  // namespace

HierarchicalAttentionImpl::HierarchicalAttentionImpl(const ModelConfig& config)
    : value(plain_linear(check(config).width, key_width(config))),
      output(plain_linear(config.width, config.width)),
      config_(config),
      rotations_(std::make_shared<positions::Table>()) {
  const int64_t width = config.width, heads = config.heads;
  const bool per_level = config.projections == Projections::per_level;
  const auto identity =
      at::eye(config.head_width()).repeat({heads, 1, 1});  // G = I, C = 0: a cone starts as the tied kernel
  auto query_keys = per_level ? register_module("query_key", group()) : nullptr;
  auto cone_gs = per_level && config.psd == Psd::cone ? register_module("cone_g", group()) : nullptr;
  auto cone_cs = per_level && config.psd == Psd::cone ? register_module("cone_c", group()) : nullptr;
  for (int64_t level = 0; level < (per_level ? config.levels : 1); ++level) {
    const auto name = std::to_string(level);
    const auto linear = plain_linear(width, config.psd == Psd::free ? width + key_width(config) : width);
    query_key.push_back(per_level ? query_keys->register_module(name, linear) : register_module("query_key", linear));
    if (config.psd != Psd::cone) continue;
    const auto g = identity.clone(), c = at::zeros_like(identity);
    cone_g.push_back(per_level ? cone_gs->register_parameter(name, g) : register_parameter("cone_g", g));
    cone_c.push_back(per_level ? cone_cs->register_parameter(name, c) : register_parameter("cone_c", c));
  }
  register_module("value", value);
  register_module("output", output);
  if (config.levels > 1) {
    const auto parts = register_module("filters", group());
    const int64_t channels = config.filter_on == FilterOn::projected ? width + key_width(config) : width;
    for (int64_t level = 1; level < config.levels; ++level) {
      filters.push_back(
          parts->register_module(std::to_string(level), Downsample(channels, config.filter, config.kernel_size)));
    }
    if (config.weights.kind == LevelWeights::Kind::learned) {
      alpha = register_parameter("alpha", at::zeros({heads, config.levels}));
    }
  }
  if (config.short_convolution != Convolution::none) {
    convolution =
        register_module("convolution", ShortConvolution(width, config.short_convolution, config.convolution_taps));
  }
  add_peer();
}

void HierarchicalAttentionImpl::add_peer() {
  switch (config_.attention) {
    case AttentionKind::linformer: {
      // Variance 1 / features, as of the random projections that Linformer's authors begin with.
      const double deviation = 1 / std::sqrt(static_cast<double>(config_.features));
      reduction = register_parameter("reduction", at::randn({config_.features, config_.max_length}).mul_(deviation));
      return;
    }
    case AttentionKind::performer:
      random_features = register_buffer(
          "random_features", peers::orthogonal_features(config_.features, config_.head_width()).to(at::kFloat));
      return;
    case AttentionKind::bigbird:
      random_keys_ = std::make_shared<peers::RandomKeys>();
      return;
    case AttentionKind::hkt:
    case AttentionKind::window:
    case AttentionKind::h1d:
      return;
  }
}

at::Tensor HierarchicalAttentionImpl::weights() const {
  const auto& parameter = value->weight;
  const auto type = parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (alpha.defined()) return at::softmax(alpha, 1, type);
  const auto options = parameter.options().dtype(type).requires_grad(false);
  if (config_.weights.kind != LevelWeights::Kind::one_level) {
    return at::full({config_.heads, config_.levels}, 1 / static_cast<double>(config_.levels), options);
  }
  auto one_level = at::zeros({config_.heads, config_.levels}, options);
  one_level.select(1, config_.weights.level).fill_(1);
  return one_level;
}

at::Tensor HierarchicalAttentionImpl::cone(int64_t level) const {
  TORCH_CHECK_VALUE(config_.psd == Psd::cone, "psd is not cone; cone() is for that mode only.");
  const auto& g = cone_g[set_of(level)];
  const auto& c = cone_c[set_of(level)];
  return at::baddbmm(c - c.transpose(1, 2), g, g.transpose(1, 2));
}

std::pair<at::Tensor, at::Tensor> HierarchicalAttentionImpl::projections(int64_t level) const {
  const auto& weight = query_key[set_of(level)]->weight;
  const int64_t width = config_.width, head_width = config_.head_width(), key_heads = config_.key_head_count();
  const auto q = weight.narrow(0, 0, width).view({config_.heads, head_width, width});
  switch (config_.psd) {
    case Psd::free: {
      const auto k = weight.narrow(0, width, key_width(config_)).view({key_heads, head_width, width});
      return {q, key_heads == config_.heads ? k : k.repeat_interleave(config_.heads / key_heads, 0)};
    }
    case Psd::tied:
      return {q, q};
    case Psd::cone:
      return {q, at::bmm(cone(level), q)};
  }
  TORCH_CHECK_VALUE(false, "psd is ", static_cast<int>(config_.psd), "; it must be free, tied or cone.");
}

// The weight of the linear layer that gives q and k. A cone is folded into it in full precision, so that it costs nothing
// per token. Rotary positions rule that out, because P must act after the rotation.
at::Tensor HierarchicalAttentionImpl::query_key_weight(int64_t level) const {
  const auto& weight = query_key[set_of(level)]->weight;
  if (config_.psd != Psd::cone || config_.positions == Positions::rotary) return weight;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::cat({weight, projections(level).second.reshape({config_.width, config_.width})});
}

std::vector<at::Tensor> HierarchicalAttentionImpl::hierarchy(const at::Tensor& x) {
  std::vector<at::Tensor> levels{x};
  if (config_.filter_on == FilterOn::projected) return levels;
  for (auto& filter : filters) levels.push_back(filter(levels.back()));
  return levels;
}

// The rows of queries and keys of all levels before positions are applied, [B, T_l, channels].
std::vector<at::Tensor> HierarchicalAttentionImpl::level_rows(const std::vector<at::Tensor>& levels) {
  std::vector<at::Tensor> rows;
  at::Tensor weight;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    if (l == 0 || query_key.size() > 1) weight = query_key_weight(static_cast<int64_t>(l));
    rows.push_back(at::linear(levels[l], weight));
  }
  if (config_.filter_on == FilterOn::projected) {
    for (auto& filter : filters) rows.push_back(filter(rows.back()));
  }
  return rows;
}

std::pair<at::Tensor, at::Tensor> HierarchicalAttentionImpl::queries_and_keys(const at::Tensor& rows,
                                                                              int64_t level) const {
  auto parts = rows.split_with_sizes(head_parts(config_), 2);
  for (auto& part : parts) part = part.transpose(1, 2);
  return with_keys(*this, parts, level);
}

HierarchicalAttentionImpl::Projected HierarchicalAttentionImpl::projected(const std::vector<at::Tensor>& levels) {
  Projected result;
  for (auto rows : level_rows(levels)) {
    const auto level = static_cast<int64_t>(result.q.size());
    rows = rows.unflatten(2, {-1, config_.head_width()});
    const auto [q, k] =
        config_.positions == Positions::rotary
            ? with_keys(*this, positions::rotate(*rotations_, rows, int64_t{1} << level, head_parts(config_)), level)
            : queries_and_keys(rows, level);
    result.q.push_back(q);
    result.k.push_back(k);
  }
  return result;
}

// [B, heads, T, head width]
at::Tensor HierarchicalAttentionImpl::attend(const Projected& projected, const at::Tensor& v,
                                             const std::optional<at::Tensor>& lengths) {
  const bool causal = config_.mask == Mask::causal;
  if (config_.attention == AttentionKind::hkt) {
    return std::get<0>(hkt::attention(projected.q, projected.k, v, weights(), causal, lengths));
  }
  const auto group = config_.heads / config_.key_head_count();
  const auto of_heads = [&](const at::Tensor& rows) { return group == 1 ? rows : rows.repeat_interleave(group, 1); };
  const peers::Inputs inputs{projected.q.front(), of_heads(projected.k.front()), of_heads(v), causal, lengths};
  const peers::Window window{config_.window, config_.globals};
  switch (config_.attention) {
    case AttentionKind::window:
      return peers::window(inputs, window);
    case AttentionKind::bigbird:
      return peers::bigbird(inputs, window, *random_keys_, config_.random_keys);
    case AttentionKind::linformer:
      return peers::linformer(inputs, reduction);
    case AttentionKind::performer:
      return peers::performer(inputs, random_features);
    case AttentionKind::h1d:
      return peers::h1d(inputs, config_.block_size);
    case AttentionKind::hkt:
      break;
  }
  TORCH_CHECK_VALUE(false, "attention is ", static_cast<int>(config_.attention), ", which is no kind of attention.");
}

at::Tensor HierarchicalAttentionImpl::forward(const at::Tensor& input, const std::optional<at::Tensor>& lengths) {
  TORCH_CHECK_VALUE(input.dim() == 3 && input.size(2) == config_.width, "x has shape ", input.sizes(),
                    "; HierarchicalAttention needs [batch, length, ", config_.width, "].");
  const auto x = autocast_once(input);
  const auto mixed = convolution ? convolution(x) : x;
  return attended(projected(hierarchy(mixed)), config_.convolution_on == ConvolutionOn::qkv ? mixed : x, lengths);
}

at::Tensor HierarchicalAttentionImpl::attended(const Projected& projected, const at::Tensor& value_input,
                                               const std::optional<at::Tensor>& lengths) {
  const auto v = value(value_input).unflatten(2, {-1, config_.head_width()}).transpose(1, 2);
  return output(attend(projected, v, lengths).transpose(1, 2).flatten(2));
}

}  // namespace hkt
