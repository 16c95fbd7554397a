// SPDX-License-Identifier: Apache-2.0
// LanguageModel: its start, its causality, and decoding, which must give the logits of a forward pass for every option.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "compare.h"
#include "errors.h"
#include "hkt/decoding.h"
#include "hkt/modules.h"

namespace hkt::testing {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.kind = ModelKind::language;
  config.mask = Mask::causal;
  config.positions = Positions::rotary;
  config.filter = Filter::depthwise;
  config.kernel_size = 4;
  config.levels = 3;
  config.heads = 4;
  config.width = 32;
  config.feedforward = 48;
  config.blocks = 2;
  config.vocab = 50;
  config.max_length = 128;
  config.dropout = 0;
  config.biases = false;
  return config;
}

struct Option {
  std::string name;
  ModelConfig config;
};
void PrintTo(const Option& option, std::ostream* out) { *out << option.name; }

std::vector<Option> options() {
  std::vector<Option> all;
  const auto add = [&](const std::string& name, const auto& change) {
    all.push_back({name, small_model()});
    change(all.back().config);
  };
  add("default", [](auto&) {});
  for (const int64_t levels : {1, 2, 5}) {
    add("levels" + std::to_string(levels), [&](auto& c) { c.levels = levels; });
  }
  add("dense", [](auto& c) { c.filter = Filter::dense, c.kernel_size = 2; });
  add("three_dense_taps", [](auto& c) { c.filter = Filter::dense, c.kernel_size = 3; });
  add("mean", [](auto& c) { c.filter = Filter::mean; });
  add("one_tap", [](auto& c) { c.kernel_size = 1; });
  add("projected", [](auto& c) { c.filter_on = FilterOn::projected; });
  add("projected_grouped", [](auto& c) { c.filter_on = FilterOn::projected, c.key_heads = 2; });
  add("grouped", [](auto& c) { c.key_heads = 1, c.levels = 4; });
  add("per_level", [](auto& c) { c.projections = Projections::per_level; });
  add("convolution", [](auto& c) { c.short_convolution = Convolution::depthwise; });
  add("convolution_qkv", [](auto& c) {
    c.short_convolution = Convolution::depthwise, c.convolution_on = ConvolutionOn::qkv, c.levels = 1;
  });
  add("dense_convolution", [](auto& c) { c.short_convolution = Convolution::dense, c.convolution_taps = 2; });
  add("tied_keys", [](auto& c) { c.psd = Psd::tied; });
  add("cone", [](auto& c) { c.psd = Psd::cone; });
  add("cone_without_positions", [](auto& c) { c.psd = Psd::cone, c.positions = Positions::none; });
  add("learned_positions", [](auto& c) { c.positions = Positions::learned; });
  add("sinusoidal_positions", [](auto& c) { c.positions = Positions::sinusoidal; });
  add("tied_head", [](auto& c) { c.tied = true; });
  add("biases", [](auto& c) { c.biases = true; });
  add("one_level", [](auto& c) { c.weights = {LevelWeights::Kind::one_level, 1}; });
  return all;
}

// Weights of another size than the start's, so that every part matters.
LanguageModel random_model(const ModelConfig& config) {
  torch::manual_seed(3);
  LanguageModel model(config);
  model->to(at::kDouble);
  model->eval();
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    if (parameter.key().find("norm") == std::string::npos)
      parameter.value().add_(at::randn_like(parameter.value()), 0.2);
  }
  return model;
}

at::Tensor random_tokens(int64_t batch, int64_t length) {
  return at::randint(50, {batch, length}, at::TensorOptions(at::kLong));
}

class Decoding : public ::testing::TestWithParam<Option> {};

TEST_P(Decoding, TokenByTokenIsAForwardPass) {
  const at::NoGradGuard no_grad;
  auto model = random_model(GetParam().config);
  const auto tokens = random_tokens(2, 75);
  const auto whole = model->forward(tokens);
  DecodingState state(model, 2, 80);
  for (int64_t t = 0; t < tokens.size(1); ++t) {
    expect_close(state.step(tokens.select(1, t)), whole.select(1, t), 1e-10, "token " + std::to_string(t));
  }
}

TEST_P(Decoding, PiecesOfAnySizeAreAForwardPass) {
  const at::NoGradGuard no_grad;
  auto model = random_model(GetParam().config);
  const auto tokens = random_tokens(2, 75);
  const auto whole = model->forward(tokens);
  for (const auto& pieces : {std::vector<int64_t>{75}, {1, 74}, {7, 1, 1, 1, 30, 2, 33}, {16, 16, 16, 16, 11}}) {
    DecodingState state(model, 2, 75);
    int64_t begin = 0;
    for (const auto size : pieces) {
      expect_close(state.extend(tokens.narrow(1, begin, size)), whole.narrow(1, begin, size), 1e-10,
                   "piece at " + std::to_string(begin));
      begin += size;
    }
  }
}

// Each sequence keeps its own length and phase.
TEST_P(Decoding, PromptsOfDifferentLengthsAreThoseOfSingleSequences) {
  const at::NoGradGuard no_grad;
  auto model = random_model(GetParam().config);
  const std::vector<int64_t> lengths = {9, 1, 30, 0, 22};
  const auto prompts = random_tokens(5, 30), more = random_tokens(5, 20);
  DecodingState state(model, 5, 60);
  auto logits = state.prefill(prompts, lengths);
  for (int64_t t = 0; t <= more.size(1); ++t) {
    for (int64_t b = 0; b < 5; ++b) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      if (length + t == 0) continue;  // nothing to predict from
      const auto own = at::cat({prompts[b].narrow(0, 30 - length, length), more[b].narrow(0, 0, t)}).unsqueeze(0);
      expect_close(logits[b], model->forward(own)[0][-1], 1e-10, "sequence " + std::to_string(b));
    }
    if (t < more.size(1)) logits = state.step(more.select(1, t));
  }
}

TEST_P(Decoding, TokensTakenBackLeaveNoTrace) {
  const at::NoGradGuard no_grad;
  auto model = random_model(GetParam().config);
  const auto tokens = random_tokens(2, 90), drafts = random_tokens(2, 90);
  const auto whole = model->forward(tokens);
  DecodingState state(model, 2, 100, /*take_back=*/9);
  int64_t length = 0;
  for (int64_t round = 0; length + 5 <= 90; ++round) {
    const int64_t accepted = 1 + round % 5, drafted = round % 9 + 1;
    state.extend(drafts.narrow(1, length, std::min<int64_t>(drafted, 90 - length)));
    state.truncate({length, length});
    expect_close(state.extend(tokens.narrow(1, length, accepted)), whole.narrow(1, length, accepted), 1e-10,
                 "round " + std::to_string(round));
    length += accepted;
    expect_close(state.step(tokens.select(1, length)), whole.select(1, length), 1e-10, "step");
    ++length;
  }
}

TEST_P(Decoding, TheFutureDoesNotLeak) {
  const at::NoGradGuard no_grad;
  auto model = random_model(GetParam().config);
  const auto tokens = random_tokens(1, 60);
  const auto whole = model->forward(tokens);
  for (const int64_t cut : {1, 17, 32, 59}) {
    auto other = tokens.clone();
    other.narrow(1, cut, 60 - cut).copy_(random_tokens(1, 60 - cut));
    EXPECT_TRUE(model->forward(other).narrow(1, 0, cut).equal(whole.narrow(1, 0, cut))) << cut;
  }
}

TEST_P(Decoding, ParametersAreThoseOfTheConfig) {
  const auto model = create_model(GetParam().config);
  const auto shapes = parameter_shapes(GetParam().config);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.size(), shapes.size());
  for (const auto& parameter : parameters) {
    ASSERT_TRUE(shapes.contains(parameter.key())) << parameter.key();
    EXPECT_EQ(parameter.value().sizes(), at::IntArrayRef(shapes.at(parameter.key()))) << parameter.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Options, Decoding, ::testing::ValuesIn(options()),
                         [](const auto& info) { return info.param.name; });

TEST(LanguageModel, StartsAsGpt2) {
  auto config = small_model();
  config.width = 256, config.feedforward = 1024, config.blocks = 8;
  LanguageModel model(config);
  const auto deviation = [](const at::Tensor& x) { return x.std().item<double>(); };
  const auto& block = *model->blocks[0]->as<Block>();
  EXPECT_NEAR(deviation(model->embedding->weight), 0.02, 1e-3);
  EXPECT_NEAR(deviation(block.attention->query_key[0]->weight), 0.02, 5e-4);
  EXPECT_NEAR(deviation(block.contract->weight), 0.005, 2e-4);
  EXPECT_NEAR(deviation(block.attention->output->weight), 0.005, 2e-4);
  EXPECT_TRUE(block.attention->filters[0]->weight.eq(0.25).all().item<bool>());
}

TEST(LanguageModel, StateRefusesWhatItCannotDo) {
  auto model = random_model(small_model());
  const auto tokens = random_tokens(2, 8);
  DecodingState state(model, 2, 10, /*take_back=*/3);
  state.extend(tokens);
  EXPECT_EQ(message_of<c10::ValueError>([&] { state.extend(tokens); }),
            "sequence 0 has 8 tokens and gets 8 more; the state has room for 10.");
  EXPECT_EQ(message_of<c10::ValueError>([&] { state.truncate({4, 8}); }),
            "sequence 0 cannot be truncated to 4: it has had 8 tokens, and this state takes back at most 3.");
  EXPECT_EQ(message_of<c10::ValueError>([&] { state.truncate({9, 8}); }),
            "lengths contains 9; sequence 0 has 8 tokens.");
  EXPECT_EQ(message_of<c10::ValueError>([&] { state.prefill(tokens, {1, 2}); }),
            "sequence 0 has 8 tokens; a padded prompt needs an empty state.");
  EXPECT_EQ(message_of<c10::ValueError>([&] { state.step(tokens.select(1, 0) + 50); }).substr(0, 15),
            "tokens contains");
  EXPECT_EQ(message_of<c10::ValueError>([&] { DecodingState(model, 1, 129); }),
            "capacity is 129; DecodingState takes 1 to the model's max_length, 128.");
  EXPECT_EQ(state.lengths(), (std::vector<int64_t>{8, 8}));
}

}  // namespace
}  // namespace hkt::testing
