// SPDX-License-Identifier: Apache-2.0
// The layer norm of the modules on a GPU: against at::layer_norm in float64. Skipped, aloud, where there is no GPU.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <string>
#include <vector>

#include "compare.h"
#include "nn/layer_norm.h"
#include "train/autocast.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

class LayerNormCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
  }
};

torch::nn::LayerNorm random_norm(int64_t width) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({width}));
  norm->to(gpu);
  const at::NoGradGuard no_grad;
  norm->weight.normal_().add_(0.5);
  norm->bias.normal_();
  return norm;
}

at::Tensor random_rows(at::IntArrayRef sizes) {
  return (at::randn(sizes, at::TensorOptions(at::kFloat).device(gpu)) * 2 + 0.7).requires_grad_();
}

// y and the gradients of x, weight and bias.
using Results = std::vector<at::Tensor>;
const std::vector<std::string> names{"y", "gradient of x", "gradient of weight", "gradient of bias"};

Results fast(const at::Tensor& x, torch::nn::LayerNorm& norm, const at::Tensor& direction, at::ScalarType type) {
  at::Tensor y;
  {
    const train::Autocast autocast(type == at::kBFloat16, gpu);
    y = layer_norm(x, norm, NormOutput::autocast);
  }
  EXPECT_EQ(y.scalar_type(), type);
  Results results = torch::autograd::grad({y}, {x, norm->weight, norm->bias}, {direction.to(type)});
  results.insert(results.begin(), y.detach());
  return results;
}

Results exact(const at::Tensor& x, torch::nn::LayerNorm& norm, const at::Tensor& direction, at::ScalarType type) {
  const auto in_double = [](const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).requires_grad_(); };
  const auto x64 = in_double(x), weight = in_double(norm->weight), bias = in_double(norm->bias);
  const auto y = at::layer_norm(x64, {x.size(-1)}, weight, bias, norm->options.eps());
  Results results = torch::autograd::grad({y}, {x64, weight, bias}, {direction.to(type).to(at::kDouble)});
  results.insert(results.begin(), y.detach());
  return results;
}

// Sums over many rows are compared relative to their size, √rows.
void expect_exact(const at::Tensor& x, at::ScalarType type, const std::string& what) {
  auto norm = random_norm(x.size(-1));
  const auto direction = at::randn(x.sizes(), x.options());
  const auto ours = fast(x, norm, direction, type);
  const auto expected = exact(x, norm, direction, type);
  const double rows = static_cast<double>(x.numel()) / static_cast<double>(x.size(-1));
  const double scale = std::sqrt(std::max(rows, 1.0));
  expect_close(ours[0], expected[0], type == at::kFloat ? 1e-5 : 1e-5 + 0x1p-8, what + names[0]);
  expect_close(ours[1], expected[1], 1e-5, what + names[1]);
  for (const size_t i : {2, 3}) expect_close(ours[i] / scale, expected[i] / scale, 1e-5, what + names[i]);
}

TEST_F(LayerNormCuda, MatchesTheDefinition) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {1, 7, 8, 32, 36, 64, 100, 128, 256, 512, 516, 1001, 1024})
      for (const int64_t rows : {0, 1, 3, 1000, 65537}) {
        const auto what = std::to_string(rows) + " rows of " + std::to_string(width) + ", " + at::toString(type) + ", ";
        expect_exact(random_rows({rows, width}), type, what);
      }
}

// Rows far from zero, whose variance must not be a difference of large numbers.
TEST_F(LayerNormCuda, RowsFarFromZero) {
  auto norm = random_norm(128);
  const auto x = (random_rows({1000, 128}).detach() + 1000).requires_grad_();
  const auto direction = at::randn_like(x);
  expect_close(fast(x, norm, direction, at::kFloat)[0], exact(x, norm, direction, at::kFloat)[0], 1e-3, "y");
}

TEST_F(LayerNormCuda, AnyShapeLayoutAndAlignment) {
  at::manual_seed(2);
  const auto x = random_rows({5, 130, 128}).detach();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    expect_exact(x.transpose(0, 1).requires_grad_(), type, "transposed, ");
    expect_exact(x.slice(2, 0, 96, 2).requires_grad_(), type, "every second column, ");
    expect_exact(x.select(1, 129).requires_grad_(), type, "last rows, ");
    expect_exact(x.flatten().narrow(0, 1, 640 * 128).view({640, 128}).requires_grad_(), type, "not aligned, ");
    expect_exact(x[0][0].requires_grad_(), type, "one row, ");
    expect_exact(random_rows({3, 0, 128}), type, "nothing, ");
  }
}

// Every element is written: the memory that results come from is filled with NaN first.
TEST_F(LayerNormCuda, TheSameBitsOnEveryRunAndEveryElementWritten) {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {7, 32, 128, 1024}) {
      auto norm = random_norm(width);
      const auto x = random_rows({20'011, width});
      const auto direction = at::randn_like(x);
      const auto first = fast(x, norm, direction, type);
      for (int repeat = 0; repeat < 20; ++repeat) {
        c10::cuda::CUDACachingAllocator::emptyCache();
        std::vector<at::Tensor> poison;
        for (int i = 0; i < 24; ++i) poison.push_back(at::full({1 << (8 + i % 18)}, NAN, x.options()));
        poison.clear();
        const auto again = fast(x, norm, direction, type);
        for (size_t i = 0; i < first.size(); ++i)
          ASSERT_TRUE(again[i].equal(first[i])) << names[i] << ", width " << width << ", " << type << ", " << repeat;
      }
    }
}

TEST_F(LayerNormCuda, OnlyLinearLayersUnderAutocastGetBfloat16) {
  auto norm = random_norm(128);
  const auto x = random_rows({10, 128});
  EXPECT_EQ(layer_norm(x, norm, NormOutput::autocast).scalar_type(), at::kFloat);
  {
    const train::Autocast autocast(true, gpu);
    const auto rounded = layer_norm(x, norm, NormOutput::autocast), full = layer_norm(x, norm, NormOutput::float32);
    EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
    EXPECT_EQ(full.scalar_type(), at::kFloat);
    EXPECT_TRUE(rounded.equal(full.to(at::kBFloat16)));
  }
  {
    const train::Autocast autocast(true, gpu);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kHalf);  // torch's default; every Autocast sets its own
    EXPECT_EQ(layer_norm(x, norm, NormOutput::autocast).scalar_type(), at::kFloat);
  }
}

// Wider rows and other dtypes go torch's way.
TEST_F(LayerNormCuda, WhatTheKernelsDoNotTake) {
  auto norm = random_norm(1025);
  const auto wide = random_rows({3, 1025});
  EXPECT_TRUE(layer_norm(wide, norm, NormOutput::float32).equal(norm(wide)));
  norm = random_norm(64);
  norm->to(at::kDouble);
  const auto x = random_rows({3, 64}).detach().to(at::kDouble);
  EXPECT_TRUE(layer_norm(x, norm, NormOutput::float32).equal(norm(x)));
}

TEST_F(LayerNormCuda, HasNoSecondDerivativeAndSaysSo) {
  auto norm = random_norm(32);
  const auto x = random_rows({3, 32});
  const auto y = layer_norm(x, norm, NormOutput::float32);
  EXPECT_THROW(torch::autograd::grad({y.pow(2).sum()}, {x}, {}, true, true), c10::NotImplementedError);
}

TEST_F(LayerNormCuda, RunsOnTheCallersStreamAndInsideAGraph) {
  auto norm = random_norm(128);
  const auto x = random_rows({300, 128}).detach();
  const at::NoGradGuard no_grad;
  const auto expected = layer_norm(x, norm, NormOutput::float32);
  const auto stream = at::cuda::getStreamFromPool();
  at::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard on_stream(stream);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const auto y = layer_norm(x, norm, NormOutput::float32);
  graph.capture_end();
  y.fill_(NAN);
  graph.replay();
  stream.synchronize();
  EXPECT_TRUE(y.equal(expected));
}

}  // namespace
}  // namespace hkt::testing
