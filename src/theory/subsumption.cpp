// SPDX-License-Identifier: Apache-2.0
// Standard attention, a causal convolution and scores of higher rank, built with HierarchicalAttention itself.
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <cmath>

#include "hkt/modules.h"
#include "hkt/theory.h"

namespace hkt::theory {
namespace {

constexpr double level_0_alone = 800;  // a gap in alpha at which float64's softmax gives exactly 1 and 0
constexpr double absent = -1000;       // in place of the logarithm of a zero tap

HierarchicalAttention module_of(const ModelConfig& config) {
  HierarchicalAttention module(config);
  module->to(at::kDouble);
  module->eval();
  return module;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

double standard_error() {
  ModelConfig config;
  config.levels = 3;
  config.heads = 2;
  config.width = 16;
  auto module = module_of(config);
  module->alpha.select(1, 0).fill_(level_0_alone);
  const auto x = at::randn({2, 21, config.width}, at::kDouble);
  const auto head = [&](const at::Tensor& y) { return y.view({2, 21, config.heads, -1}).transpose(1, 2); };
  const auto both = module->query_key[0](x).chunk(2, 2);
  const auto attended = at::scaled_dot_product_attention(head(both[0]), head(both[1]), head(module->value(x)));
  return largest_difference(module->forward(x), module->output(attended.transpose(1, 2).flatten(2)));
}

// M[i, j] = log w_{i − j}, up to a constant; rows are queries.
at::Tensor logarithms_of_taps(const std::vector<double>& taps, int64_t tokens) {
  double largest = 0;
  for (const double tap : taps) largest = std::max(largest, tap);
  auto matrix = at::full({tokens, tokens}, absent, at::kDouble);
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t r = 0; r < std::min<int64_t>(std::ssize(taps), i + 1); ++r)
      if (taps[r] > 0) matrix[i][i - r] = std::log(taps[r] / largest);
  return matrix;
}

// y[i] = Σ_r w_r x[i − r] with one head for the positive taps and one for the negative ones. Tokens carry their position
// as a one-hot vector beside the channels; taps − 1 tokens with zero channels stand for the padding before the sequence.
double convolution_error() {
  constexpr int64_t length = 13, channels = 3, heads = 2, head_width = 16;
  const std::vector<double> kernel = {0.7, -0.4, 0.25, -1.1};
  const auto taps = std::ssize(kernel);
  const int64_t tokens = length + taps - 1;
  ModelConfig config;
  config.levels = 2;
  config.heads = heads;
  config.width = heads * head_width;
  auto module = module_of(config);
  module->alpha.select(1, 0).fill_(level_0_alone);
  auto& query_key = module->query_key[0]->weight;
  for (auto* weight : {&query_key, &module->value->weight, &module->output->weight}) weight->zero_();
  const auto identity = at::eye(tokens, at::kDouble);
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<double> part;
    double total = 0;
    for (const double tap : kernel) {
      part.push_back(std::max(0.0, h == 0 ? tap : -tap));
      total += part.back();
    }
    // q_i = e_i and k_j = √D · (column j of M), so that q_i · k_j / √D = M[i, j].
    const int64_t row = h * head_width;
    query_key.narrow(0, row, tokens).narrow(1, 0, tokens).copy_(identity);
    query_key.narrow(0, config.width + row, tokens)
        .narrow(1, 0, tokens)
        .copy_(logarithms_of_taps(part, tokens) * std::sqrt(static_cast<double>(head_width)));
    const auto pass = at::eye(channels, at::kDouble);
    module->value->weight.narrow(0, row, channels).narrow(1, tokens, channels).copy_(pass);
    module->output->weight.narrow(0, tokens, channels).narrow(1, row, channels).copy_((h == 0 ? total : -total) * pass);
  }
  const auto signal = at::randn({length, channels}, at::kDouble);
  auto x = at::zeros({1, tokens, config.width}, at::kDouble);
  x[0].narrow(1, 0, tokens).copy_(identity);
  x[0].narrow(0, taps - 1, length).narrow(1, tokens, channels).copy_(signal);
  const auto result = module->forward(x)[0].narrow(0, taps - 1, length).narrow(1, tokens, channels);

  const auto weight = at::tensor(kernel, at::kDouble).flip(0).expand({channels, 1, taps});
  const auto padded = at::constant_pad_nd(signal.t(), {taps - 1, 0}).unsqueeze(0);
  const auto expected =
      at::conv1d(padded, weight, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1}, channels)[0].t();
  return largest_difference(result, expected);
}

// Softmax ignores a constant added to a row, so the rank that matters is that of the row-centred scores.
void reach_higher_rank(Subsumption& result) {
  constexpr double tolerance = 1e-9;
  ModelConfig config;
  config.levels = 3;
  config.heads = 1;
  config.width = 4;
  auto module = module_of(config);
  const auto x = at::randn({1, 32, config.width}, at::kDouble);
  const auto [q, k] = module->projected(module->hierarchy(x));
  std::vector<at::Tensor> own_q, own_k;
  for (size_t level = 0; level < q.size(); ++level) {
    own_q.push_back(q[level][0][0]);
    own_k.push_back(k[level][0][0]);
  }
  const auto scores = combined(head_scores(own_q, own_k, module->weights()[0], false), config.levels);
  const auto singular = at::linalg_svdvals(scores - scores.mean(1, true));
  result.head_width = config.width;
  result.levels = config.levels;
  result.rank = singular.gt(tolerance * singular[0]).sum().item<int64_t>();
}

}  // namespace

Subsumption subsumption(std::int64_t seed) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  Subsumption result;
  result.standard_error = standard_error();
  result.convolution_error = convolution_error();
  reach_higher_rank(result);
  return result;
}

}  // namespace hkt::theory
