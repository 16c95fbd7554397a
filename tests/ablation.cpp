// SPDX-License-Identifier: Apache-2.0
// Answers without a level or without a part of the input, against models that are changed or inputs that are written out.
#include "theory/ablation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "theory/walk.h"

namespace hkt::theory {
namespace {

ModelConfig config_of(ModelKind kind) {
  ModelConfig config;
  config.kind = kind;
  config.width = 16;
  config.heads = 2;
  config.feedforward = 24;
  config.blocks = 2;
  config.levels = 3;
  config.max_length = 32;
  config.classes = 3;
  if (kind == ModelKind::language) {
    config.mask = Mask::causal;
    config.short_convolution = Convolution::depthwise;
    config.convolution_on = ConvolutionOn::qkv;
  }
  return config;
}

// With weights that are not all alike, so that levels and blocks count.
Transformer model_of(const ModelConfig& config) {
  torch::manual_seed(2);
  auto model = create_model(config);
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.2);
  return exact_copy(*model);
}

at::Tensor expected(TransformerImpl& model, const at::Tensor& tokens) {
  auto logits = model.forward(tokens.unsqueeze(0))[0];
  if (logits.dim() == 2) logits = logits[-1];
  return at::log_softmax(logits, 0);
}

void expect_close(const at::Tensor& found, const at::Tensor& expected, double error = 1e-10) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected.to(at::kDouble), 0, error)) << found << expected;
}

const auto both_kinds = {ModelKind::classifier, ModelKind::language};

// A level whose queries are zero by its own projections has no scores; then leaving it out changes nothing else.
TEST(Ablation, ALevelIsLeftOut) {
  for (const auto kind : both_kinds) {
    auto config = config_of(kind);
    config.projections = Projections::per_level;
    const auto model = model_of(config);
    const at::NoGradGuard no_grad;
    const auto tokens = at::arange(1, 24, at::kLong);
    const auto whole = log_probabilities(*model, tokens);
    for (std::int64_t level = 0; level < config.levels; ++level) {
      const auto found = log_probabilities_without_level(*model, tokens, level);
      EXPECT_GT((found - whole).abs().max().item<double>(), 1e-4);
      const auto other = exact_copy(*model);
      for (const auto& block : *other->blocks) {
        auto& attention = *block->as<Block>()->attention;
        attention.query_key[static_cast<std::size_t>(level)]->weight.narrow(0, 0, config.width).zero_();
      }
      expect_close(found, log_probabilities(*other, tokens));
      expect_close(log_probabilities_without_level(*other, tokens, level), found);
    }
  }
}

TEST(Ablation, UnitsAreTakenOutOrReplaced) {
  for (const auto kind : both_kinds) {
    const auto model = model_of(config_of(kind));
    const at::NoGradGuard no_grad;
    const auto tokens = at::tensor({5, 6, 7, 8, 9, 10, 11}, at::kLong);
    const std::vector<Unit> units = {{0}, {2, 3}, {1, 5}, {6}, {0, 1, 2, 3, 4, 5}};
    const std::vector<at::Tensor> left = {at::tensor({6, 7, 8, 9, 10, 11}, at::kLong),
                                          at::tensor({5, 6, 9, 10, 11}, at::kLong),
                                          at::tensor({5, 7, 8, 9, 11}, at::kLong),
                                          at::tensor({5, 6, 7, 8, 9, 10}, at::kLong), at::tensor({11}, at::kLong)};
    const auto out = log_probabilities_without_units(*model, tokens, units);
    const auto replaced = log_probabilities_without_units(*model, tokens, units, 32);
    for (std::size_t i = 0; i < units.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      expect_close(out[row], expected(*model, left[i]));
      expect_close(replaced[row], expected(*model, tokens.index_fill(0, at::tensor(units[i], at::kLong), 32)));
    }
    const auto all = log_probabilities(*model, tokens);
    expect_close(kind == ModelKind::language ? all[-1] : all, expected(*model, tokens));
  }
}

// More sequences than one batch has.
TEST(Ablation, ManyUnits) {
  const auto model = model_of(config_of(ModelKind::classifier));
  const at::NoGradGuard no_grad;
  const auto tokens = at::arange(1, 33, at::kLong);
  std::vector<Unit> units;
  for (std::int64_t i = 0; i < 600; ++i) units.push_back({i % 32});
  const auto found = log_probabilities_without_units(*model, tokens, units);
  ASSERT_EQ(found.size(0), 600);
  expect_close(found[599], found[599 % 32]);
}

}  // namespace
}  // namespace hkt::theory
