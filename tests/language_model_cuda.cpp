// SPDX-License-Identifier: Apache-2.0
// A language model on a GPU: against the same on the CPU, in float32, which has kernels of its own there; and generating, whose
// steps are replays of a CUDA graph, against forward passes. Skipped, aloud, where there is no GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "compare.h"
#include "hkt/decoding.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

ModelConfig small_model() {
  ModelConfig config;
  config.kind = ModelKind::language;
  config.mask = Mask::causal;
  config.positions = Positions::rotary;
  config.filter = Filter::depthwise;
  config.kernel_size = 4;
  config.levels = 4;
  config.heads = 4;
  config.width = 64;
  config.feedforward = 96;
  config.blocks = 2;
  config.vocab = 50;
  config.max_length = 256;
  config.dropout = 0;
  config.biases = false;
  return config;
}

std::vector<ModelConfig> models() {
  std::vector<ModelConfig> all(9, small_model());
  all[1].levels = 1;
  all[2].key_heads = 1;  // hkt::attention_extend, which keeps no scores
  all[3].filter_on = FilterOn::projected;
  all[4].short_convolution = Convolution::depthwise;
  all[5].filter = Filter::mean, all[5].positions = Positions::learned;
  all[6].filter = Filter::dense, all[6].kernel_size = 2;  // row by row
  all[7].psd = Psd::tied;
  all[8].filter_on = FilterOn::projected, all[8].key_heads = 2, all[8].positions = Positions::none;
  return all;
}

class LanguageModelCuda : public ::testing::TestWithParam<ModelConfig> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
  }
};

TEST_P(LanguageModelCuda, HasTheNumbersOfTheCpu) {
  torch::manual_seed(3);
  LanguageModel model(GetParam());
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.05);
  }
  const auto tokens = at::randint(50, {3, 101}, at::kLong);
  const auto direction = at::randn({3, 101, 50});
  std::vector<std::vector<at::Tensor>> found;
  for (const auto& device : {at::Device(at::kCPU), gpu}) {
    model->to(device);
    const auto logits = model->forward(tokens.to(device));
    auto results = torch::autograd::grad({logits}, model->parameters(), {direction.to(device)}, {}, false, true);
    results.push_back(logits.detach());
    found.emplace_back();
    for (const auto& result : results) found.back().push_back(result.defined() ? result.cpu() : at::Tensor());
  }
  auto names = model->named_parameters().keys();
  names.emplace_back("logits");
  for (size_t i = 0; i < names.size(); ++i) {
    if (!found[0][i].defined()) continue;
    const auto scale = found[0][i].abs().max().clamp_min(1e-6);
    expect_close(found[1][i] / scale, found[0][i] / scale, 1e-4, names[i]);
  }
}

class DecodingCuda : public ::testing::TestWithParam<ModelConfig> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
    torch::manual_seed(3);
    model_ = LanguageModel(GetParam());
    model_->to(gpu, at::kDouble);
    model_->eval();
    const at::NoGradGuard no_grad;
    for (auto& parameter : model_->named_parameters()) {
      if (parameter.key().find("norm") == std::string::npos)
        parameter.value().add_(at::randn_like(parameter.value()), 0.2);
    }
  }

  LanguageModel model_ = nullptr;
};

at::Tensor random_tokens(int64_t batch, int64_t length) {
  return at::randint(50, {batch, length}, at::TensorOptions(at::kLong).device(gpu));
}

TEST_P(DecodingCuda, StepsAreAForwardPass) {
  const at::NoGradGuard no_grad;
  const auto tokens = random_tokens(2, 100);
  const auto whole = model_->forward(tokens);
  DecodingState state(model_, 2, 100);
  for (int64_t t = 0; t < tokens.size(1); ++t)
    expect_close(state.step(tokens.select(1, t)).cpu(), whole.select(1, t).cpu(), 1e-10, "token " + std::to_string(t));
}

// Between replays other work goes through the caches, and the sequences have lengths of their own.
TEST_P(DecodingCuda, PromptsDraftsAndStepsMix) {
  const at::NoGradGuard no_grad;
  const auto tokens = random_tokens(3, 90);
  DecodingState state(model_, 3, 100, /*take_back=*/10);
  std::vector<int64_t> lengths = {20, 17, 1};
  const auto prompt = tokens.narrow(1, 0, 20).clone();
  for (size_t b = 0; b < lengths.size(); ++b)
    prompt[static_cast<int64_t>(b)]
        .narrow(0, 20 - lengths[b], lengths[b])
        .copy_(tokens[static_cast<int64_t>(b)].narrow(0, 0, lengths[b]));
  state.prefill(prompt, lengths);
  const auto next = [&] {
    std::vector<at::Tensor> rows;
    for (size_t b = 0; b < lengths.size(); ++b) rows.push_back(tokens[static_cast<int64_t>(b)][lengths[b]]);
    return at::stack(rows);
  };
  const auto expect_logits = [&](const at::Tensor& logits) {
    for (size_t b = 0; b < lengths.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const auto whole = model_->forward(tokens.narrow(0, row, 1).narrow(1, 0, lengths[b]));
      expect_close(logits[row].cpu(), whole[0][-1].cpu(), 1e-10,
                   "sequence " + std::to_string(b) + " at " + std::to_string(lengths[b]));
    }
  };
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 9; ++i) {
      const auto logits = state.step(next());
      for (auto& length : lengths) ++length;
      expect_logits(logits);
    }
    auto shorter = state.lengths();
    for (auto& length : shorter) length -= 3;
    state.truncate(shorter);
    lengths = shorter;
  }
}

// In the type that generating uses: rounding differs between steps and whole prompts.
TEST_P(DecodingCuda, StepsInBfloat16AreCloseToAPrompt) {
  const at::NoGradGuard no_grad;
  LanguageModel model(GetParam());
  model->to(gpu, at::kBFloat16);
  const auto tokens = random_tokens(2, 60);
  DecodingState steps(model, 2, 60), prompt(model, 2, 60);
  const auto whole = prompt.extend(tokens);
  for (int64_t t = 0; t < tokens.size(1); ++t)
    expect_close(steps.step(tokens.select(1, t)).cpu(), whole.select(1, t).cpu(), 3e-2, "token " + std::to_string(t));
}

INSTANTIATE_TEST_SUITE_P(Options, LanguageModelCuda, ::testing::ValuesIn(models()));
INSTANTIATE_TEST_SUITE_P(Options, DecodingCuda, ::testing::ValuesIn(models()));

}  // namespace
}  // namespace hkt::testing
