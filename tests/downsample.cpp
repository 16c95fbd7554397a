// SPDX-License-Identifier: Apache-2.0
// The operator hkt::downsample against its reference: values, gradients, causality, dtypes and bad inputs.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "compare.h"
#include "errors.h"
#include "hkt/ops.h"
#include "hkt/reference.h"

namespace {

using hkt::testing::expect_close;

struct Case {
  int64_t batch, length, width, taps;
  bool dense;
  std::string name() const {
    return "B = " + std::to_string(batch) + ", T = " + std::to_string(length) + ", d = " + std::to_string(width) +
           ", K = " + std::to_string(taps) + (dense ? ", dense" : ", depthwise");
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool dense : {true, false}) {
    for (const int64_t taps : {1, 2, 3, 4, 5, 7}) {
      for (const int64_t length : {0, 1, 2, 3, 4, 5, 8, 13, 64}) {
        for (const int64_t batch : {0, 1, 3}) all.push_back({batch, length, 1 + length % 5 * 4, taps, dense});
      }
    }
  }
  all.push_back({2, 100, 48, 2, true});
  all.push_back({2, 101, 48, 2, true});
  return all;
}

at::Tensor make_weight(const Case& c, at::ScalarType type = at::kDouble) {
  const auto options = at::TensorOptions(type);
  return c.dense ? at::randn({c.taps, c.width, c.width}, options) : at::randn({c.taps, c.width}, options);
}

void compare(const at::Tensor& x, const at::Tensor& weight, const std::string& what) {
  const auto leaf_x = x.detach().requires_grad_(), leaf_weight = weight.detach().requires_grad_();
  const auto y = hkt::downsample(leaf_x, leaf_weight);
  const auto expected = hkt::reference::downsample(leaf_x, leaf_weight);
  expect_close(y, expected, 1e-11, what);
  const auto direction = at::randn_like(y);
  const auto grads = torch::autograd::grad({y}, {leaf_x, leaf_weight}, {direction});
  const auto expected_grads = torch::autograd::grad({expected}, {leaf_x, leaf_weight}, {direction});
  expect_close(grads[0], expected_grads[0], 1e-11, what + ", gradient of x");
  expect_close(grads[1], expected_grads[1], 1e-11, what + ", gradient of weight");
}

TEST(Downsample, EqualsTheReference) {
  torch::manual_seed(1);
  for (const auto& c : cases()) compare(at::randn({c.batch, c.length, c.width}, at::kDouble), make_weight(c), c.name());
}

TEST(Downsample, ReadsStridedInputs) {
  torch::manual_seed(2);
  const auto options = at::TensorOptions(at::kDouble);
  for (const bool dense : {true, false}) {
    for (const int64_t taps : {1, 2, 3, 4}) {
      const auto weight = make_weight({1, 1, 6, taps, dense});
      compare(at::randn({3, 6, 9}, options).transpose(1, 2), weight, "width not last in memory");
      compare(at::randn({3, 20, 6}, options).narrow(1, 3, 9), weight, "odd part of longer sequences");
      compare(at::randn({3, 20, 6}, options).narrow(1, 3, 10), weight, "even part of longer sequences");
      compare(at::randn({3, 8, 12}, options).narrow(2, 2, 6), weight, "part of wider rows");
      compare(at::randn({8, 3, 6}, options).transpose(0, 1), weight, "length before batch");
      compare(at::randn({1, 8, 6}, options).expand({3, 8, 6}), weight, "one sequence repeated");
      compare(at::randn({3, 8, 6}, options), weight.transpose(-1, -2).contiguous().transpose(-1, -2), "strided weight");
    }
  }
}

TEST(Downsample, GradientIsTheLimitOfDifferences) {
  torch::manual_seed(3);
  const auto x = at::randn({2, 5, 3}, at::kDouble), weight = at::randn({2, 3, 3}, at::kDouble);
  auto leaf = weight.clone().requires_grad_();
  hkt::downsample(x, leaf).square().sum().backward();
  for (int64_t i = 0; i < weight.numel(); ++i) {
    const double step = 1e-5;
    auto up = weight.clone(), down = weight.clone();
    up.view(-1)[i] += step;
    down.view(-1)[i] -= step;
    const auto slope = (hkt::downsample(x, up).square().sum() - hkt::downsample(x, down).square().sum()) / (2 * step);
    EXPECT_NEAR(slope.item<double>(), leaf.grad().view(-1)[i].item<double>(), 1e-6);
  }
}

TEST(Downsample, SeesNothingOfTheFuture) {
  torch::manual_seed(4);
  for (const bool dense : {true, false}) {
    for (const int64_t taps : {1, 2, 3, 5}) {
      for (const int64_t length : {12, 13}) {
        const auto weight = make_weight({2, length, 4, taps, dense});
        const auto x = at::randn({2, length, 4}, at::kDouble);
        const auto y = hkt::downsample(x, weight);
        for (int64_t row = 0; row < y.size(1); ++row) {
          auto changed = x.clone();
          changed.slice(1, 2 * row + 1).fill_(std::numeric_limits<double>::quiet_NaN());
          const auto seen = hkt::downsample(changed, weight).narrow(1, 0, row + 1);
          EXPECT_TRUE(at::equal(seen, y.narrow(1, 0, row + 1))) << "row " << row << ", K = " << taps;
        }
      }
    }
  }
}

TEST(Downsample, WhatNoOutputSeesHasNoPartInTheGradient) {
  auto x = at::randn({3, 8, 4}, at::kDouble);
  x.select(1, 7).fill_(std::numeric_limits<double>::infinity());
  x.requires_grad_();
  const auto weight = at::randn({2, 4, 4}, at::kDouble).requires_grad_();
  hkt::downsample(x, weight).sum().backward();
  EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
  EXPECT_EQ(x.grad().select(1, 7).abs().sum().item<double>(), 0);
}

TEST(Downsample, LowPrecisionIsAsGoodAsAProductInIt) {
  torch::manual_seed(5);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool dense : {true, false}) {
      const double tolerance = type == at::kFloat ? 1e-4 : type == at::kHalf ? 1e-2 : 6e-2;
      const auto x = at::randn({2, 21, 16}, at::kDouble).to(type),
                 weight = make_weight({2, 21, 16, 3, dense}, type) / 4;
      const auto y = hkt::downsample(x, weight);
      EXPECT_EQ(y.scalar_type(), type);
      expect_close(y.to(at::kDouble), hkt::reference::downsample(x.to(at::kDouble), weight.to(at::kDouble)), tolerance,
                   c10::toString(type));
    }
  }
}

TEST(Downsample, AutocastUsesItsDtypeAndReturnsGradientsOfTheInputs) {
  const auto x = at::randn({2, 6, 4}).requires_grad_(), weight = at::randn({2, 4, 4}).requires_grad_();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto y = hkt::downsample(x, weight);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

TEST(Downsample, MetaTensorsGiveShapesAlone) {
  const auto meta = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  const auto y = hkt::downsample(at::empty({2, 9, 4}, meta), at::empty({3, 4, 4}, meta));
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 5, 4}));
  EXPECT_TRUE(y.is_meta());
}

TEST(Downsample, SecondDerivativeIsRefused) {
  const auto x = at::randn({1, 4, 2}).requires_grad_(), weight = at::randn({2, 2, 2}).requires_grad_();
  const auto y = hkt::downsample(x, weight);
  const auto grads = torch::autograd::grad({y}, {x}, {at::ones_like(y).requires_grad_()}, true, true);
  expect_within("second derivative is not implemented", message_of<c10::Error>([&] { grads[0].sum().backward(); }));
}

TEST(Downsample, BadInputsAreNamed) {
  const auto meta = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  for (const auto& options : {at::TensorOptions(at::kFloat), meta}) {
    const auto x = at::zeros({2, 4, 3}, options), weight = at::zeros({2, 3, 3}, options);
    const std::vector<std::tuple<at::Tensor, at::Tensor, std::string>> bad = {
        {at::zeros({4, 3}, options), weight, "hkt::downsample: x is [4, 3], must be [batch, length, width]"},
        {at::zeros({2, 4, 3}, options.dtype(at::kLong)), weight, "x is Long"},
        {x, at::zeros({2, 3, 3}, options.dtype(at::kDouble)), "weight is Double"},
        {x, at::zeros({3}, options), "weight is [3]"},
        {x, at::zeros({0, 3, 3}, options), "with at least one tap"},
        {x, at::zeros({2, 3, 4}, options), "weight is [2, 3, 4], must be [taps, 3, 3]"},
        {x, at::zeros({2, 4}, options), "weight is [2, 4]"},
    };
    for (const auto& [bad_x, bad_weight, expected] : bad)
      expect_within(expected, message_of<c10::Error>([&x = bad_x, &w = bad_weight] { hkt::downsample(x, w); }));
  }
  expect_within("weight is on meta",
                message_of<c10::Error>([&] { hkt::downsample(at::zeros({2, 4, 3}), at::zeros({2, 3, 3}, meta)); }));
}

}  // namespace
