// SPDX-License-Identifier: Apache-2.0
// Standard attention, a causal convolution and scores of higher rank, built with HierarchicalAttention itself.
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hkt/modules.h"
#include "hkt/ops.h"
#include "hkt/theory.h"

namespace hkt::theory {
namespace {

HierarchicalAttention module_of(const ModelConfig& config) {
  HierarchicalAttention module(config);
  module->to(at::kDouble);
  module->eval();
  return module;
}

HierarchicalAttention copy_of(const HierarchicalAttentionImpl& module) {
  auto copy = module_of(module.config());
  const auto from = module.named_parameters();
  for (auto& parameter : copy->named_parameters()) parameter.value().copy_(from[parameter.key()]);
  return copy;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// Standard attention with the module's queries, keys and values of level 0. x [B, T, width].
at::Tensor standard_attention(HierarchicalAttentionImpl& module, const at::Tensor& x) {
  const auto& config = module.config();
  const auto mixed = module.convolution ? module.convolution(x) : x;
  const auto levels = module.projected(module.hierarchy(mixed));
  const auto values = module.value(config.convolution_on == ConvolutionOn::qkv ? mixed : x);
  const auto v = values.unflatten(2, {-1, config.head_width()}).transpose(1, 2);
  const auto group = config.heads / config.key_head_count();
  const auto attended =
      at::scaled_dot_product_attention(levels.q[0], levels.k[0].repeat_interleave(group, 1),
                                       v.repeat_interleave(group, 1), {}, 0, config.mask == Mask::causal);
  return module.output(attended.transpose(1, 2).flatten(2));
}

// With zero filters every coarse level is zero, and M/λ_0 undoes the weight of level 0. Where keys are computed from queries, a
// factor of queries counts twice.
void leave_level_0(HierarchicalAttentionImpl& module) {
  const auto& config = module.config();
  for (auto& filter : module.filters) filter->weight.zero_();
  const auto lambda = module.weights().select(1, 0);
  const auto factor = config.psd == Psd::free ? 1 / lambda : lambda.rsqrt();
  module.query_key[0]
      ->weight.narrow(0, 0, config.width)
      .mul_(factor.repeat_interleave(config.head_width()).unsqueeze(1));
}

// HierarchicalAttention of that config with random weights, λ too.
HierarchicalAttention random_module(const ModelConfig& config) {
  auto module = module_of(config);
  if (module->alpha.defined()) module->alpha.normal_();
  return module;
}

double standard_error() {
  ModelConfig config;
  config.levels = 3;
  config.heads = 2;
  config.width = 16;
  return contained_attention_error(*random_module(config), at::randn({21, config.width}, at::kDouble))
      .value_or(std::numeric_limits<double>::infinity());
}

// M[i, j] = log w_{i − j}, up to a constant, and −c where there is no tap; rows are queries.
at::Tensor logarithms_of_taps(const std::vector<double>& taps, int64_t tokens, double c) {
  const double largest = *std::max_element(taps.begin(), taps.end());
  auto matrix = at::full({tokens, tokens}, -c, at::kDouble);
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t r = 0; r < std::min<int64_t>(std::ssize(taps), i + 1); ++r)
      if (taps[r] > 0) matrix[i][i - r] = std::log(taps[r] / largest);
  return matrix;
}

// The magnitudes of the positive taps (sign 1) or of the negative ones, and zeros.
std::vector<double> taps_of_sign(const std::vector<double>& kernel, double sign) {
  std::vector<double> taps;
  for (const double tap : kernel) taps.push_back(std::max(0.0, sign * tap));
  return taps;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// One head for the positive taps and one for the negative ones. Tokens carry their position as a one-hot vector before their
// channels: q_i = e_i and k_j = √D · (column j of M), so that q_i · k_j / √D = M[i, j].
HierarchicalAttention convolving_module(const ModelConfig& config, const std::vector<double>& kernel, int64_t tokens,
                                        int64_t channels, double c) {
  auto module = random_module(config);
  auto& query_key = module->query_key[0]->weight;
  for (auto* weight : {&query_key, &module->value->weight, &module->output->weight}) weight->zero_();
  const auto pass = at::eye(channels, at::kDouble);
  for (int64_t h = 0; h < 2; ++h) {
    const double sign = h == 0 ? 1 : -1;
    const auto taps = taps_of_sign(kernel, sign);
    const int64_t row = h * config.head_width();
    query_key.narrow(0, row, tokens).narrow(1, 0, tokens).copy_(at::eye(tokens, at::kDouble));
    query_key.narrow(0, config.width + row, tokens)
        .narrow(1, 0, tokens)
        .copy_(logarithms_of_taps(taps, tokens, c) * std::sqrt(static_cast<double>(config.head_width())));
    module->value->weight.narrow(0, row, channels).narrow(1, tokens, channels).copy_(pass);
    module->output->weight.narrow(0, tokens, channels).narrow(1, row, channels).copy_(sign * sum_of(taps) * pass);
  }
  leave_level_0(*module);
  return module;
}

// y[i] = Σ_r w_r x[i − r], signal [T, channels].
at::Tensor convolution_of(const at::Tensor& signal, const std::vector<double>& kernel) {
  const auto taps = std::ssize(kernel), channels = signal.size(1);
  const auto weight = at::tensor(kernel, at::kDouble).flip(0).expand({channels, 1, taps});
  const auto padded = at::constant_pad_nd(signal.t(), {taps - 1, 0}).unsqueeze(0);
  return at::conv1d(padded, weight, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1}, channels)[0].t();
}

// Softmax ignores a constant added to a row, so the rank that matters is that of the row-centred scores.
void reach_higher_rank(Subsumption& result) {
  ModelConfig config;
  config.levels = 3;
  config.heads = 1;
  config.width = 4;
  constexpr int64_t length = 64;  // half of it for each side of the block
  auto module = random_module(config);
  const auto [q, k] = module->projected(module->hierarchy(at::randn({1, length, config.width}, at::kDouble)));
  std::vector<at::Tensor> own_q, own_k;
  for (size_t level = 0; level < q.size(); ++level) {
    own_q.push_back(q[level][0][0]);
    own_k.push_back(k[level][0][0]);
  }
  result.head_width = config.width;
  result.levels = config.levels;
  result.rank = centred_block_rank(combined(head_scores(own_q, own_k, module->weights()[0], true), config.levels));
  result.rank_bound = centred_rank_bound(config.levels, config.width, length / 2);
}

}  // namespace

ConvolutionLimit convolution_limit(std::int64_t seed, double c) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  constexpr int64_t length = 13, channels = 3;
  const std::vector<double> kernel = {0.7, -0.4, 0.25, -1.1};
  const auto before = std::ssize(kernel) - 1;  // tokens without channels that stand for the padding before the sequence
  const int64_t tokens = length + before;
  ModelConfig config;
  config.levels = 2;
  config.heads = 2;
  config.width = config.heads * tokens + 6;
  auto module = convolving_module(config, kernel, tokens, channels, c);
  const auto signal = at::randn({length, channels}, at::kDouble);
  auto x = at::zeros({1, tokens, config.width}, at::kDouble);
  x[0].narrow(1, 0, tokens).copy_(at::eye(tokens, at::kDouble));
  x[0].narrow(0, before, length).narrow(1, tokens, channels).copy_(signal);
  const auto result = module->forward(x)[0].narrow(0, before, length).narrow(1, tokens, channels);
  const double weight = sum_of(taps_of_sign(kernel, 1)) + sum_of(taps_of_sign(kernel, -1));
  return {largest_difference(result, convolution_of(signal, kernel)),
          2 * static_cast<double>(tokens) * std::exp(-c) * weight * signal.abs().max().item<double>()};
}

Subsumption subsumption(std::int64_t seed) {
  const at::NoGradGuard no_grad;
  constexpr double nearly_the_limit = 30;
  Subsumption result;
  result.convolution = convolution_limit(seed, nearly_the_limit);
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  result.standard_error = standard_error();
  reach_higher_rank(result);
  return result;
}

std::int64_t centred_rank_bound(std::int64_t levels, std::int64_t head_width, std::int64_t length) {
  auto bound = levels * head_width;
  for (std::int64_t level = 0; level < levels; ++level)
    bound = std::min(bound, level * head_width + level_rows(length, level) - 1);
  return bound;
}

std::int64_t centred_block_rank(const at::Tensor& scores) {
  constexpr double tolerance = 1e-9;  // of the largest singular value
  const auto half = scores.size(0) / 2;
  if (half == 0) return 0;
  const auto block = scores.narrow(0, scores.size(0) - half, half).narrow(1, 0, half);
  const auto singular = at::linalg_svdvals(block - block.mean(1, true));
  return singular[0].item<double>() > 0 ? singular.gt(tolerance * singular[0]).sum().item<std::int64_t>() : 0;
}

std::optional<double> contained_attention_error(HierarchicalAttentionImpl& module, const at::Tensor& x) {
  const auto& config = module.config();
  if (config.levels > 1 && config.filter == Filter::mean) return {};  // a constant, which cannot be zero
  if (module.weights().select(1, 0).min().item<double>() <= 0) return {};
  const at::NoGradGuard no_grad;
  const auto batch = x.unsqueeze(0);
  const auto expected = standard_attention(module, batch);
  auto copy = copy_of(module);
  leave_level_0(*copy);
  const double size = expected.abs().max().item<double>();
  return size > 0 ? largest_difference(copy->forward(batch), expected) / size : 0;
}

std::optional<double> equivariance_gap(HierarchicalAttentionImpl& module, const at::Tensor& x) {
  const auto& config = module.config();
  if (config.mask == Mask::causal || config.positions == Positions::rotary || module.convolution) return {};
  const at::NoGradGuard no_grad;
  const auto result = module.forward(x.unsqueeze(0))[0], permuted = module.forward(x.flip(0).unsqueeze(0))[0];
  const double size = result.norm().item<double>();
  return size > 0 ? (permuted - result.flip(0)).norm().item<double>() / size : 0;
}

}  // namespace hkt::theory
