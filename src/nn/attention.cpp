// SPDX-License-Identifier: Apache-2.0
// The module HierarchicalAttention: the levels, their queries and keys, and one call of hkt::attention. Projections are
// written as [B, T, 2, heads, head width], and the operator reads them through strides, without a copy.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "hkt/modules.h"
#include "hkt/ops.h"
#include "positions.h"

namespace hkt {
namespace {

torch::nn::Linear plain_linear(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
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
    : value(plain_linear(check(config).width, config.width)),
      output(plain_linear(config.width, config.width)),
      config_(config),
      head_width_(config.width / config.heads),
      rotations_(std::make_shared<positions::Table>()) {
  const int64_t width = config.width, heads = config.heads;
  const bool per_level = config.projections == Projections::per_level;
  const auto identity = at::eye(head_width_).repeat({heads, 1, 1});  // G = I, C = 0: a cone starts as the tied kernel
  auto query_keys = per_level ? register_module("query_key", group()) : nullptr;
  auto cone_gs = per_level && config.psd == Psd::cone ? register_module("cone_g", group()) : nullptr;
  auto cone_cs = per_level && config.psd == Psd::cone ? register_module("cone_c", group()) : nullptr;
  for (int64_t level = 0; level < (per_level ? config.levels : 1); ++level) {
    const auto name = std::to_string(level);
    const auto linear = plain_linear(width, config.psd == Psd::free ? 2 * width : width);
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
    for (int64_t level = 1; level < config.levels; ++level) {
      filters.push_back(
          parts->register_module(std::to_string(level), Downsample(width, config.filter, config.kernel_size)));
    }
    if (config.weights.kind == LevelWeights::Kind::learned) {
      alpha = register_parameter("alpha", at::zeros({heads, config.levels}));
    }
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
  const auto q = weight.narrow(0, 0, config_.width).view({config_.heads, head_width_, config_.width});
  switch (config_.psd) {
    case Psd::free:
      return {q, weight.narrow(0, config_.width, config_.width).view_as(q)};
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
  for (auto& filter : filters) levels.push_back(filter(levels.back()));
  return levels;
}

HierarchicalAttentionImpl::Projected HierarchicalAttentionImpl::projected(const std::vector<at::Tensor>& levels) {
  Projected result;
  at::Tensor weight;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const auto level = static_cast<int64_t>(l);
    if (l == 0 || query_key.size() > 1) weight = query_key_weight(level);
    const auto& x = levels[l];
    const int64_t parts = weight.size(0) / config_.width;
    auto both = at::linear(x, weight).view({x.size(0), x.size(1), parts, config_.heads, head_width_});
    if (config_.positions == Positions::rotary) {
      both = positions::rotate(*rotations_, both, int64_t{1} << level);
    }
    const auto split = both.unbind(2);
    const auto q = split.front().transpose(1, 2);
    const bool apply_cone = config_.psd == Psd::cone && parts == 1;
    result.q.push_back(q);
    result.k.push_back(apply_cone ? at::matmul(q, cone(level).transpose(1, 2)) : split.back().transpose(1, 2));
  }
  return result;
}

at::Tensor HierarchicalAttentionImpl::forward(const at::Tensor& input, const std::optional<at::Tensor>& lengths) {
  TORCH_CHECK_VALUE(input.dim() == 3 && input.size(2) == config_.width, "x has shape ", input.sizes(),
                    "; HierarchicalAttention needs [batch, length, ", config_.width, "].");
  const auto x = autocast_once(input);
  const auto [q, k] = projected(hierarchy(x));
  const auto v = value(x).view({x.size(0), x.size(1), config_.heads, head_width_}).transpose(1, 2);
  const auto [out, lse] = hkt::attention(q, k, v, weights(), config_.mask == Mask::causal, lengths);
  return output(out.transpose(1, 2).flatten(2));
}

}  // namespace hkt
