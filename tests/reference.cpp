// SPDX-License-Identifier: Apache-2.0
// The two oracles of HKT attention agree with each other, with SDPA where they must, and with hand-made downsampling.
#include "hkt/reference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <vector>

#include "compare.h"

namespace {

struct Case {
  int64_t batch, heads, length, levels, width, value_width;
  bool causal;
  std::vector<int64_t> lengths = {};
};

struct Inputs {
  std::vector<at::Tensor> q, k;
  at::Tensor v, weights;
  std::optional<at::Tensor> lengths;

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> tensors{v, weights};
    tensors.insert(tensors.end(), q.begin(), q.end());
    tensors.insert(tensors.end(), k.begin(), k.end());
    return tensors;
  }
};

Inputs make_inputs(const Case& c) {
  torch::manual_seed(c.length * 31 + c.levels);
  const auto options = at::TensorOptions(at::kDouble);
  Inputs inputs;
  for (int64_t level = 0, rows = c.length; level < c.levels; ++level, rows = (rows + 1) / 2) {
    inputs.q.push_back(at::randn({c.batch, c.heads, rows, c.width}, options).requires_grad_());
    inputs.k.push_back(at::randn({c.batch, c.heads, rows, c.width}, options).requires_grad_());
  }
  inputs.v = at::randn({c.batch, c.heads, c.length, c.value_width}, options).requires_grad_();
  inputs.weights = at::softmax(at::randn({c.heads, c.levels}, options), 1).requires_grad_();
  if (!c.lengths.empty()) inputs.lengths = at::tensor(c.lengths, at::kLong);
  return inputs;
}

// Both sides are float64.
void expect_same(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  hkt::testing::expect_close(a, b, 1e-12, what);
}

const std::vector<Case> cases = {
    {2, 3, 7, 3, 4, 5, false},
    {2, 3, 7, 3, 4, 5, true},
    {1, 1, 1, 4, 2, 1, false},
    {1, 2, 13, 8, 3, 3, true},
    {3, 1, 16, 1, 4, 4, false},
    {2, 2, 33, 4, 8, 2, true},
    {3, 2, 9, 3, 4, 4, false, {9, 4, 0}},
    {3, 2, 9, 3, 4, 4, true, {1, 5, 0}},
    {2, 2, 12, 2, 1, 3, false, {0, 0}},
    {2, 2, 0, 3, 4, 4, false},
    {2, 1, 0, 2, 4, 4, true, {0, 0}},
    {0, 2, 5, 2, 4, 4, true},
};

TEST(Reference, OraclesAgreeInValuesAndGradients) {
  for (const auto& c : cases) {
    const std::string what = "T = " + std::to_string(c.length) + ", L = " + std::to_string(c.levels);
    const auto inputs = make_inputs(c);
    const auto [out, lse] =
        hkt::reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights, c.causal, inputs.lengths);
    const auto [other_out, other_lse] =
        hkt::reference::attention_concatenated(inputs.q, inputs.k, inputs.v, inputs.weights, c.causal, inputs.lengths);
    expect_same(out, other_out, what + ", out");
    expect_same(lse.exp(), other_lse.exp(), what + ", exp(lse)");
    EXPECT_FALSE(out.isnan().any().item<bool>() || lse.isnan().any().item<bool>()) << what;

    const auto direction = at::randn_like(out);
    const auto grads = torch::autograd::grad({out}, inputs.all(), {direction});
    const auto other_grads = torch::autograd::grad({other_out}, inputs.all(), {direction});
    for (std::size_t i = 0; i < grads.size(); ++i) {
      expect_same(grads[i], other_grads[i], what + ", gradient " + std::to_string(i));
      EXPECT_FALSE(grads[i].isnan().any().item<bool>()) << what << ", gradient " << i;
    }
  }
}

TEST(Reference, PaddingRowsAreZeroAndSendNoGradient) {
  const auto inputs = make_inputs({3, 2, 9, 3, 4, 4, false, {9, 4, 0}});
  const auto [out, lse] =
      hkt::reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights, false, inputs.lengths);
  EXPECT_EQ(out[1].narrow(1, 4, 5).abs().sum().item<double>(), 0);
  EXPECT_EQ(out[2].abs().sum().item<double>(), 0);
  EXPECT_TRUE(lse[2].isneginf().all().item<bool>());
  EXPECT_TRUE(lse[1].narrow(1, 4, 5).isneginf().all().item<bool>());
  EXPECT_TRUE(lse[0].isfinite().all().item<bool>());
  out.sum().backward();
  EXPECT_EQ(inputs.v.grad()[1].narrow(1, 4, 5).abs().sum().item<double>(), 0);
  EXPECT_EQ(inputs.q[0].grad()[2].abs().sum().item<double>(), 0);
}

TEST(Reference, OneLevelAndOneHotWeightsAreStandardAttention) {
  for (const bool causal : {false, true}) {
    const auto one = make_inputs({2, 3, 11, 1, 4, 5, causal});
    const auto standard = at::scaled_dot_product_attention(one.q[0], one.k[0], one.v, {}, 0, causal);
    const auto ones = at::ones({3, 1}, at::kDouble);
    expect_same(std::get<0>(hkt::reference::attention(one.q, one.k, one.v, ones, causal)), standard, "L = 1");

    const auto three = make_inputs({2, 3, 11, 3, 4, 5, causal});
    auto one_hot = at::zeros({3, 3}, at::kDouble);
    one_hot.select(1, 0).fill_(1);
    const auto expected = at::scaled_dot_product_attention(three.q[0], three.k[0], three.v, {}, 0, causal);
    expect_same(std::get<0>(hkt::reference::attention(three.q, three.k, three.v, one_hot, causal)), expected,
                "λ_0 = 1");
  }
}

TEST(Reference, ScaleIsOneOverRootOfTheWidthUnlessGiven) {
  const auto inputs = make_inputs({1, 1, 6, 2, 4, 4, false});
  const auto usual = std::get<0>(hkt::reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights));
  const auto half =
      std::get<0>(hkt::reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights, false, {}, 0.5));
  const auto other =
      std::get<0>(hkt::reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights, false, {}, 0.7));
  expect_same(usual, half, "scale 1/√4");
  EXPECT_FALSE(at::allclose(usual, other));
}

TEST(Reference, LowPrecisionIsComputedInTheDtypeOfTheWeights) {
  const auto inputs = make_inputs({1, 2, 6, 2, 4, 4, false});
  std::vector<at::Tensor> q, k;
  for (const auto& t : inputs.q) q.push_back(t.to(at::kBFloat16));
  for (const auto& t : inputs.k) k.push_back(t.to(at::kBFloat16));
  const auto v = inputs.v.to(at::kBFloat16), weights = inputs.weights.to(at::kFloat);
  const auto [out, lse] = hkt::reference::attention(q, k, v, weights);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_EQ(lse.scalar_type(), at::kFloat);
  for (auto* levels : {&q, &k})
    for (auto& level : *levels) level = level.to(at::kFloat);
  const auto [exact, exact_lse] = hkt::reference::attention(q, k, v.to(at::kFloat), weights);
  EXPECT_TRUE(out.equal(exact.to(at::kBFloat16))) << "rounded before the end";
  EXPECT_TRUE(lse.equal(exact_lse)) << "rounded before the end";
}

// Two taps on four tokens, by hand: y[0] = x[0]·W_0, y[1] = x[2]·W_0 + x[1]·W_1.
TEST(Reference, DownsampleByHand) {
  const auto x = at::arange(1, 9, at::kDouble).view({1, 4, 2});
  const auto weight = at::tensor({1., 10., 100., 1000.}, at::kDouble).view({2, 2});
  const auto expected = at::tensor({1., 20., 5 + 300., 60 + 4000.}, at::kDouble).view({1, 2, 2});
  expect_same(hkt::reference::downsample(x, weight), expected, "depthwise");
  expect_same(hkt::reference::downsample(x, at::diag_embed(weight)), expected, "dense");
}

}  // namespace
