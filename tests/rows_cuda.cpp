// SPDX-License-Identifier: Apache-2.0
// What the modules do to rows on a GPU, depthwise convolutions and rotary positions: against plain formulas in float64. Skipped,
// aloud, where there is no GPU.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/cuda.h>

#include <cmath>
#include <string>
#include <vector>

#include "compare.h"
#include "hkt/ops.h"
#include "ops/depthwise_cuda.h"
#include "ops/rotary_cuda.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

class RowsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
    at::manual_seed(1);
  }
};

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::TensorOptions(at::kFloat).device(gpu)).to(type).requires_grad_();
}
at::Tensor in_double(const at::Tensor& x) { return x.detach().to(at::kDouble).requires_grad_(); }
double tolerance(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-5 + 0x1p-11 : 1e-5 + 0x1p-8;
}

// y[m] = Σ_r weight[r] · x[step · m − r].
at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, int64_t step) {
  const int64_t length = x.size(1), taps = weight.size(0);
  const auto padded = at::constant_pad_nd(x, {0, 0, taps - 1, 0});
  auto y = at::zeros_like(x);
  for (int64_t r = 0; r < taps; ++r) y = y + padded.narrow(1, taps - 1 - r, length) * weight[r];
  return y.slice(1, 0, length, step);
}

std::vector<at::Tensor> with_gradients(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& direction) {
  auto all = torch::autograd::grad({y}, {x, weight}, {direction});
  all.insert(all.begin(), y.detach());
  return all;
}

void expect_convolved(const at::Tensor& x, int64_t taps, int64_t step, const std::string& what) {
  const auto type = x.scalar_type();
  const auto weight = random({taps, x.size(2)}, type);
  const auto y = step == 1 ? ops::short_convolution_cuda(x, weight) : downsample(x, weight);
  const auto x64 = in_double(x), weight64 = in_double(weight);
  auto y64 = convolved(x64, weight64, step);
  if (step == 1) y64 = y64 + x64;
  ASSERT_EQ(y.sizes(), y64.sizes()) << what;
  const auto direction = at::randn(y.sizes(), x.options().requires_grad(false));
  const auto ours = with_gradients(y, x, weight, direction);
  const auto expected = with_gradients(y64, x64, weight64, direction.to(at::kDouble));
  const double rows = std::sqrt(static_cast<double>(std::max<int64_t>(1, y.size(0) * y.size(1))));
  expect_close(ours[0], expected[0], tolerance(type), what + "y");
  expect_close(ours[1], expected[1], tolerance(type), what + "gradient of x");
  expect_close(ours[2].to(at::kDouble) / rows, expected[2] / rows, tolerance(type), what + "gradient of weight");
}

TEST_F(RowsCuda, ConvolutionsMatchTheirDefinition) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t step : {1, 2})
      for (const int64_t width : {1, 6, 8, 64, 100, 264, 1024})
        for (const int64_t length : {1, 2, 3, 7, 64, 1001})
          for (const int64_t taps : {1, 2, 4, 7}) {
            const auto what = std::string(at::toString(type)) + ", step " + std::to_string(step) + ", " +
                              std::to_string(length) + " rows of " + std::to_string(width) + ", " +
                              std::to_string(taps) + " taps, ";
            expect_convolved(random({3, length, width}, type), taps, step, what);
          }
}

TEST_F(RowsCuda, ConvolutionsTakeRowsAnyDistanceApart) {
  for (const int64_t step : {1, 2}) {
    const auto wide = random({3, 57, 200}, at::kBFloat16).detach();
    expect_convolved(wide.narrow(2, 3, 64).requires_grad_(), 4, step, "an odd first channel, ");
    expect_convolved(wide.narrow(2, 8, 64).requires_grad_(), 4, step, "rows with gaps, ");
    expect_convolved(wide.transpose(1, 2).requires_grad_(), 4, step, "channels with gaps, ");
    expect_convolved(wide.narrow(0, 0, 1).expand({4, 57, 200}).requires_grad_(), 4, step, "one sequence for all, ");
  }
}

TEST_F(RowsCuda, ConvolutionsTakeManySequences) {
  for (const int64_t step : {1, 2}) {
    expect_convolved(random({70000, 5, 8}, at::kBFloat16), 4, step, "70,000 sequences, ");
    expect_convolved(random({1, 300001, 8}, at::kBFloat16), 4, step, "one of 300,001 rows, ");
    const auto none = random({0, 5, 8}, at::kFloat), weight = random({4, 8}, at::kFloat);
    const auto y = step == 1 ? ops::short_convolution_cuda(none, weight) : downsample(none, weight);
    EXPECT_EQ(y.size(0), 0);
    EXPECT_TRUE(torch::autograd::grad({y.sum()}, {weight}).front().eq(0).all().item<bool>());
  }
}

TEST_F(RowsCuda, ConvolutionsRepeatTheirBits) {
  const auto x = random({9, 1025, 256}, at::kBFloat16), weight = random({4, 256}, at::kBFloat16);
  const auto direction = at::randn({9, 513, 256}, x.options().requires_grad(false));
  const auto first = with_gradients(downsample(x, weight), x, weight, direction);
  for (int i = 0; i < 20; ++i) {
    const auto again = with_gradients(downsample(x, weight), x, weight, direction);
    for (size_t j = 0; j < first.size(); ++j) ASSERT_TRUE(first[j].equal(again[j]));
  }
}

// [B, T, heads, D] as complex numbers, times factors.
at::Tensor turned(const at::Tensor& rows, const at::Tensor& factors) {
  const auto pairs = at::view_as_complex(rows.unflatten(3, {-1, 2}).contiguous());
  return at::view_as_real(pairs * factors.unsqueeze(1)).flatten(3);
}

TEST_F(RowsCuda, RotaryPositionsMatchTheirDefinition) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t width : {2, 4, 6, 64, 100, 128})
      for (const int64_t length : {1, 3, 257})
        for (const auto& parts : {std::vector<int64_t>{4}, {4, 4}, {6, 1}, {5, 2}}) {
          int64_t heads = 0;
          for (const auto part : parts) heads += part;
          const auto rows = random({3, length, heads, width}, type);
          const auto factors =
              at::randn({2 * length, width / 2}, rows.options().dtype(at::kComplexFloat).requires_grad(false))
                  .slice(0, 0, 2 * length, 2);
          const auto ours = ops::rotary_cuda(rows, factors, parts);
          const auto rows64 = in_double(rows);
          const auto expected = turned(rows64, factors.to(at::kComplexDouble)).split_with_sizes(parts, 2);
          std::vector<at::Tensor> directions, directions64;
          const auto what = std::string(at::toString(type)) + ", width " + std::to_string(width) + ", " +
                            std::to_string(length) + " rows, " + std::to_string(heads) + " heads, ";
          ASSERT_EQ(ours.size(), parts.size());
          for (size_t i = 0; i < parts.size(); ++i) {
            expect_close(ours[i].transpose(1, 2), expected[i], tolerance(type), what + "y");
            // As the attention's gradients come, heads before rows.
            directions.push_back(at::randn(ours[i].sizes(), ours[i].options()).contiguous());
            directions64.push_back(directions[i].transpose(1, 2).to(at::kDouble));
          }
          const auto grad = torch::autograd::grad(ours, {rows}, directions).front();
          const auto grad64 = torch::autograd::grad(expected, {rows64}, directions64).front();
          expect_close(grad, grad64, tolerance(type), what + "gradient");
        }
}

TEST_F(RowsCuda, RotaryPositionsOfOnePartHaveTheGradientOfThatPart) {
  const auto rows = random({2, 9, 4, 8}, at::kFloat);
  const auto factors = at::randn({9, 4}, rows.options().dtype(at::kComplexFloat).requires_grad(false));
  const auto parts = ops::rotary_cuda(rows, factors, {3, 1});
  const auto grad = torch::autograd::grad({parts[0].square().sum()}, {rows}).front();
  EXPECT_TRUE(grad.narrow(2, 3, 1).eq(0).all().item<bool>());
  EXPECT_FALSE(grad.narrow(2, 0, 3).eq(0).any().item<bool>());
}

}  // namespace
}  // namespace hkt::testing
