// SPDX-License-Identifier: Apache-2.0
// Training steps on a GPU: captured as CUDA graphs and replayed, against the same steps launched one by one. Skipped, aloud, where
// there is no GPU.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <vector>

#include "data/batches.h"
#include "train/learner.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

class TrainingCuda : public ::testing::TestWithParam<Positions> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
    at::globalContext().setDeterministicAlgorithms(true, true);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

data::Batch random_batch(std::int64_t size, std::int64_t length) {
  auto lengths = at::randint(1, length + 1, {size}, at::kLong);
  lengths[0].fill_(length);
  return {at::randint(0, 50, {size, length}, at::kLong), lengths, at::randint(0, 3, {size}, at::kLong),
          lengths.sum().item<std::int64_t>()};
}

std::vector<data::Batch> batches_of_two_shapes() {
  std::vector<data::Batch> batches;
  for (int i = 0; i < 12; ++i) batches.push_back(random_batch(6, i % 3 == 0 ? 100 : 37));
  return batches;
}

struct Trained {
  at::Tensor results;  // mean loss, correct and gradient norm of each step
  std::vector<at::Tensor> parameters;
};

// Evaluation in between, because it shares the model's tables and torch's memory with the steps.
Trained trained(const Config& config, train::CudaGraphs graphs, const std::vector<data::Batch>& batches) {
  torch::manual_seed(7);
  train::Learner learner(config, gpu, graphs);
  std::vector<train::StepResult> results;
  double rate = 1e-3;
  for (const auto& batch : batches) {
    results.push_back(learner.step(batch, rate));
    rate *= 0.9;
    if (results.size() % 5 == 0) {
      const at::NoGradGuard no_grad;
      learner.model()->eval();
      learner.model()->forward(at::randint(0, 50, {3, 128}, at::TensorOptions(gpu).dtype(at::kLong)), {});
    }
  }
  std::vector<double> numbers;
  for (const auto& [loss, correct, norm] : train::StepResult::wait_for(results)) {
    numbers.insert(numbers.end(), {loss, correct, norm});
  }
  return {at::tensor(numbers, at::kDouble), learner.model()->parameters()};
}

TEST_P(TrainingCuda, GraphsGiveTheBitsOfLaunchedOnes) {
  Config config;
  config.model.width = config.model.feedforward = 64;
  config.model.vocab = 50;
  config.model.classes = 3;
  config.model.max_length = 128;
  config.model.positions = GetParam();
  torch::manual_seed(1);
  const auto batches = batches_of_two_shapes();
  const auto launched = trained(config, train::CudaGraphs::off, batches);
  const auto graphed = trained(config, train::CudaGraphs::on, batches);
  EXPECT_TRUE(launched.results.isfinite().all().item<bool>());
  EXPECT_TRUE(at::equal(launched.results, graphed.results)) << launched.results - graphed.results;
  ASSERT_EQ(launched.parameters.size(), graphed.parameters.size());
  for (std::size_t i = 0; i < launched.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(launched.parameters[i], graphed.parameters[i])) << "parameter " << i;
  }
}

// Long sequences are thousands of shapes: each graph with memory of its own would fill any GPU.
TEST_P(TrainingCuda, GraphsShareTheirMemory) {
  Config config;
  config.model.vocab = 50;
  config.model.classes = 3;
  config.model.max_length = 512;
  config.model.positions = GetParam();
  train::Learner learner(config, gpu);
  const auto reserved = [] {
    return static_cast<double>(c10::cuda::CUDACachingAllocator::getDeviceStats(gpu.index()).reserved_bytes[0].current);
  };
  const auto step_twice = [&](std::int64_t length) {
    for (int i = 0; i < 2; ++i) learner.step(random_batch(32, length), 1e-3);
  };
  c10::cuda::CUDACachingAllocator::emptyCache();
  step_twice(512);
  const double first = reserved();
  for (std::int64_t length = 511; length > 470; --length) step_twice(length);
  EXPECT_LT(reserved(), 1.5 * first);
}

// The methods that HKT is compared with are plain LibTorch; some of its kernels add in an order of their own, so bits differ.
class PeersCuda : public ::testing::TestWithParam<AttentionKind> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
    config_.model.attention = GetParam();
    config_.model.levels = 1;
    config_.model.width = config_.model.feedforward = 64;
    config_.model.vocab = 50;
    config_.model.classes = 3;
    config_.model.max_length = 128;
    config_.model.window = config_.model.random_keys = 5;
    config_.model.block_size = 8;
    config_.model.dropout = 0;
    config_.train.precision = Precision::float32;
  }

  Config config_;
};

TEST_P(PeersCuda, AreThoseOfTheCpu) {
  torch::manual_seed(3);
  const auto model = create_model(config_.model);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto batch = random_batch(6, 101);
  const auto expected = model->forward(batch.tokens, batch.lengths);
  model->to(gpu);
  const auto actual = model->forward(batch.tokens.to(gpu), batch.lengths.to(gpu)).cpu();
  EXPECT_TRUE(at::allclose(actual, expected, 1e-3, 1e-4)) << (actual - expected).abs().max();
}

TEST_P(PeersCuda, GraphsGiveTheResultsOfLaunchedOnes) {
  torch::manual_seed(1);
  const auto batches = batches_of_two_shapes();
  for (const auto precision : {Precision::float32, Precision::bfloat16}) {
    config_.train.precision = precision;
    const auto launched = trained(config_, train::CudaGraphs::off, batches);
    const auto graphed = trained(config_, train::CudaGraphs::on, batches);
    EXPECT_TRUE(launched.results.isfinite().all().item<bool>());
    const auto losses = [](const Trained& run) { return run.results.view({-1, 3}).select(1, 0); };
    EXPECT_TRUE(at::allclose(losses(launched), losses(graphed), 2e-2, 1e-2))
        << at::stack({losses(launched), losses(graphed)});
  }
}

INSTANTIATE_TEST_SUITE_P(All, PeersCuda,
                         ::testing::Values(AttentionKind::window, AttentionKind::bigbird, AttentionKind::linformer,
                                           AttentionKind::performer, AttentionKind::h1d));

INSTANTIATE_TEST_SUITE_P(All, TrainingCuda,
                         ::testing::Values(Positions::sinusoidal, Positions::learned, Positions::rotary));

}  // namespace
}  // namespace hkt::testing
