// SPDX-License-Identifier: Apache-2.0
// The modules: every option, causality, padding, the cases with a known answer, gradients, and bad inputs.
#include "hkt/modules.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <functional>
#include <string>
#include <vector>

#include "errors.h"
#include "hkt/ops.h"
#include "hkt/reference.h"

namespace {

using hkt::AttentionKind;
using hkt::Filter;
using hkt::LevelWeights;
using hkt::Mask;
using hkt::ModelConfig;
using hkt::Pooling;
using hkt::Positions;
using hkt::Projections;
using hkt::Psd;

ModelConfig small() {
  ModelConfig config;
  config.heads = 2;
  config.width = 12;
  config.feedforward = 16;
  config.dropout = 0;
  config.classes = 5;
  config.vocab = 11;
  config.max_length = 40;
  return config;
}

struct Option {
  std::string name;
  std::function<void(ModelConfig&)> set;
};

// Every value of every enum at least once, and the combinations that take a road of their own.
const std::vector<Option> options = {
    {"default", [](ModelConfig&) {}},
    {"one level", [](ModelConfig& c) { c.levels = 1; }},
    {"one level, per level, causal",
     [](ModelConfig& c) { c.levels = 1, c.projections = Projections::per_level, c.mask = Mask::causal; }},
    {"five levels, causal", [](ModelConfig& c) { c.levels = 5, c.mask = Mask::causal; }},
    {"depthwise, four taps", [](ModelConfig& c) { c.filter = Filter::depthwise, c.kernel_size = 4; }},
    {"dense, three taps", [](ModelConfig& c) { c.kernel_size = 3; }},
    {"mean", [](ModelConfig& c) { c.filter = Filter::mean; }},
    {"per level", [](ModelConfig& c) { c.projections = Projections::per_level; }},
    {"uniform", [](ModelConfig& c) { c.weights = {LevelWeights::Kind::uniform, 0}; }},
    {"level one alone", [](ModelConfig& c) { c.weights = {LevelWeights::Kind::one_level, 1}; }},
    {"learned positions, last", [](ModelConfig& c) { c.positions = Positions::learned, c.pooling = Pooling::last; }},
    {"rotary, causal", [](ModelConfig& c) { c.positions = Positions::rotary, c.mask = Mask::causal; }},
    {"no positions", [](ModelConfig& c) { c.positions = Positions::none; }},
    {"tied", [](ModelConfig& c) { c.psd = Psd::tied; }},
    {"tied, rotary, last",
     [](ModelConfig& c) { c.psd = Psd::tied, c.positions = Positions::rotary, c.pooling = Pooling::last; }},
    {"cone", [](ModelConfig& c) { c.psd = Psd::cone; }},
    {"cone, per level, causal",
     [](ModelConfig& c) { c.psd = Psd::cone, c.projections = Projections::per_level, c.mask = Mask::causal; }},
    {"cone, per level, rotary",
     [](ModelConfig& c) {
       c.psd = Psd::cone, c.projections = Projections::per_level, c.positions = Positions::rotary;
     }},
    {"one head, odd width", [](ModelConfig& c) { c.heads = 1, c.width = 7; }},
    {"window", [](ModelConfig& c) { c.attention = AttentionKind::window, c.levels = 1, c.window = 2; }},
    {"window, rotary, one key head, causal",
     [](ModelConfig& c) {
       c.attention = AttentionKind::window, c.levels = 1, c.window = 3, c.globals = 0, c.key_heads = 1;
       c.positions = Positions::rotary, c.mask = Mask::causal;
     }},
    {"bigbird",
     [](ModelConfig& c) {
       c.attention = AttentionKind::bigbird, c.levels = 1, c.window = 1, c.globals = 2, c.random_keys = 3;
     }},
    {"linformer", [](ModelConfig& c) { c.attention = AttentionKind::linformer, c.levels = 1, c.features = 5; }},
    {"performer", [](ModelConfig& c) { c.attention = AttentionKind::performer, c.levels = 1, c.features = 9; }},
    {"h1d", [](ModelConfig& c) { c.attention = AttentionKind::h1d, c.levels = 1, c.block_size = 2; }},
    {"h1d, one key head, convolution, causal",
     [](ModelConfig& c) {
       c.attention = AttentionKind::h1d, c.levels = 1, c.block_size = 4, c.key_heads = 1;
       c.short_convolution = hkt::Convolution::dense, c.mask = Mask::causal;
     }},
};

ModelConfig config_of(const Option& option) {
  auto config = small();
  option.set(config);
  return config;
}

// A model whose parameters are all away from their special starting points.
hkt::Classifier make_model(const ModelConfig& config) {
  torch::manual_seed(3);
  hkt::Classifier model(config);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.1);
  model->to(at::kDouble);
  return model;
}

at::Tensor random_tokens(int64_t batch, int64_t length) { return at::randint(0, 11, {batch, length}, at::kLong); }

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

bool finite(const at::Tensor& x) { return x.isfinite().all().item<bool>(); }

TEST(Modules, EveryOptionRunsInEveryPrecision) {
  for (const auto& option : options) {
    const auto config = config_of(option);
    hkt::Classifier model(config);
    for (const int64_t length : {0, 1, 2, 7, 16, 40}) {
      const auto tokens = random_tokens(3, length);
      const auto lengths = at::tensor({length, length / 2, int64_t{0}}, at::kLong);
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
        model->to(type);
        for (const auto& logits : {model(tokens), model(tokens, lengths)}) {
          EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3, config.classes})) << option.name;
          EXPECT_EQ(logits.scalar_type(), type) << option.name;
          EXPECT_TRUE(finite(logits)) << option.name << ", T = " << length;
        }
      }
    }
  }
}

TEST(Modules, GradientsReachEveryParameter) {
  for (const auto& option : options) {
    auto model = make_model(config_of(option));
    const auto tokens = random_tokens(4, 13);
    at::cross_entropy_loss(model(tokens, at::tensor({13, 12, 5, 0}, at::kLong)), at::arange(4)).backward();
    for (const auto& parameter : model->named_parameters()) {
      const auto& grad = parameter.value().grad();
      ASSERT_TRUE(grad.defined()) << option.name << ", " << parameter.key();
      EXPECT_TRUE(finite(grad)) << option.name << ", " << parameter.key();
      const bool unused = option.name == "level one alone" && parameter.key().find("filters.2") != std::string::npos;
      EXPECT_EQ(grad.abs().max().item<double>() > 0, !unused) << option.name << ", " << parameter.key();
    }
  }
}

TEST(Modules, AutocastRunsTheProductsInItsDtype) {
  for (const auto& option : options) {
    torch::manual_seed(5);
    hkt::Classifier model(config_of(option));
    const auto tokens = random_tokens(3, 14), lengths = at::tensor({14, 9, 0}, at::kLong);
    const auto full = model(tokens, lengths);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const auto low = model(tokens, lengths);
    at::cross_entropy_loss(low, at::arange(3)).backward();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(low.scalar_type(), at::kBFloat16) << option.name;
    EXPECT_LT(difference(full, low), 0.03 * full.abs().max().item<double>()) << option.name;
    EXPECT_GT(difference(full, low), 0) << option.name;
    for (const auto& parameter : model->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << option.name << ", " << parameter.key();
      EXPECT_EQ(parameter.value().grad().scalar_type(), at::kFloat) << option.name << ", " << parameter.key();
      EXPECT_TRUE(finite(parameter.value().grad())) << option.name << ", " << parameter.key();
    }
  }
}

TEST(Modules, UnderTheCausalMaskNothingDependsOnTheFuture) {
  for (const auto& option : options) {
    auto config = config_of(option);
    if (config.attention == AttentionKind::linformer) continue;
    config.mask = Mask::causal;
    auto model = make_model(config);
    auto tokens = random_tokens(2, 19);
    const auto before = model->hidden(tokens);
    for (const int64_t from : {1, 2, 7, 8, 16, 18}) {
      auto changed = tokens.clone();
      changed.slice(1, from).copy_((tokens.slice(1, from) + 1).remainder(11));
      const auto after = model->hidden(changed);
      EXPECT_LT(difference(before.slice(1, 0, from), after.slice(1, 0, from)), 1e-12) << option.name << ", " << from;
      EXPECT_GT(difference(before.slice(1, from), after.slice(1, from)), 1e-6) << option.name << ", " << from;
    }
  }
}

TEST(Modules, PaddingChangesNothing) {
  for (const auto& option : options) {
    auto model = make_model(config_of(option));
    const auto tokens = random_tokens(3, 13), lengths = at::tensor({13, 6, 1}, at::kLong);
    const auto expected = model(tokens, lengths);
    for (const int64_t padding : {0, 1, 4, 27}) {
      auto longer = random_tokens(3, 13 + padding);
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t length = lengths[b].item<int64_t>();
        longer[b].narrow(0, 0, length).copy_(tokens[b].narrow(0, 0, length));
      }
      EXPECT_LT(difference(model(longer, lengths), expected), 1e-12) << option.name << ", padding " << padding;
    }
    for (int64_t b = 0; b < 3; ++b) {
      const auto alone = model(tokens.narrow(0, b, 1).narrow(1, 0, lengths[b].item<int64_t>()));
      EXPECT_LT(difference(alone[0], expected[b]), 1e-12) << option.name << ", sequence " << b << " alone";
    }
  }
}

TEST(Modules, ASequenceOfLengthZeroGivesTheBiasOfTheHead) {
  for (const auto pooling : {Pooling::mean, Pooling::last}) {
    auto config = small();
    config.pooling = pooling;
    auto model = make_model(config);
    EXPECT_LT(difference(model(random_tokens(2, 6), at::tensor({3, 0}, at::kLong))[1], model->head->bias), 1e-15);
    EXPECT_LT(difference(model(random_tokens(2, 0))[1], model->head->bias), 1e-15);
  }
}

// The definition, step by step, without the module's layout tricks.
TEST(Modules, AttentionIsTheDefinition) {
  for (const auto& option : options) {
    const auto config = config_of(option);
    if (config.positions == Positions::rotary || config.attention != AttentionKind::hkt) continue;
    auto model = make_model(config);
    auto attention = model->blocks[0]->as<hkt::Block>()->attention;
    const auto x = at::randn({2, 11, config.width}, at::kDouble);
    std::vector<at::Tensor> q, k;
    auto level_x = x;
    for (int64_t level = 0; level < config.levels; ++level) {
      if (level > 0) {
        const auto index = static_cast<std::size_t>(level - 1);
        level_x = hkt::reference::downsample(level_x, attention->filters[index]->weight);
      }
      const auto [w_q, w_k] = attention->projections(level);
      q.push_back(at::einsum("btd,hed->bhte", {level_x, w_q}));
      k.push_back(at::einsum("btd,hed->bhte", {level_x, w_k}));
    }
    const auto v = at::linear(x, attention->value->weight)
                       .view({2, 11, config.heads, config.width / config.heads})
                       .transpose(1, 2);
    const auto lengths = at::tensor({11, 4}, at::kLong);
    const auto out =
        std::get<0>(hkt::reference::attention(q, k, v, attention->weights(), config.mask == Mask::causal, lengths));
    const auto expected = at::linear(out.transpose(1, 2).reshape_as(x), attention->output->weight);
    EXPECT_LT(difference(attention->forward(x, lengths), expected), 1e-11) << option.name;
  }
}

// The steps of forward, one by one; a level whose queries are zero changes the result.
TEST(Modules, AttentionInSteps) {
  torch::manual_seed(8);
  auto config = small();
  config.short_convolution = hkt::Convolution::depthwise;
  config.convolution_on = hkt::ConvolutionOn::qkv;
  hkt::HierarchicalAttention attention(config);
  const auto x = at::randn({2, 13, config.width});
  const auto lengths = at::tensor({13, 9}, at::kLong);
  const auto mixed = attention->convolution(x);
  auto projected = attention->projected(attention->hierarchy(mixed));
  const auto whole = attention->forward(x, lengths);
  EXPECT_TRUE(attention->attended(projected, mixed, lengths).equal(whole));
  projected.q[1] = at::zeros_like(projected.q[1]);
  EXPECT_FALSE(attention->attended(projected, mixed, lengths).allclose(whole));
}

TEST(Modules, OneLevelIsStandardAttention) {
  for (const auto mask : {Mask::none, Mask::causal}) {
    auto config = small();
    config.levels = 1;
    config.mask = mask;
    auto model = make_model(config);
    auto attention = model->blocks[0]->as<hkt::Block>()->attention;
    EXPECT_FALSE(attention->alpha.defined());
    const auto x = at::randn({3, 9, 12}, at::kDouble);
    const auto heads = [&](const at::Tensor& y) { return y.view({3, 9, 2, 6}).transpose(1, 2); };
    const auto q_k = at::linear(x, attention->query_key[0]->weight).chunk(2, 2);
    const auto out = at::scaled_dot_product_attention(
        heads(q_k[0]), heads(q_k[1]), heads(at::linear(x, attention->value->weight)), {}, 0, mask == Mask::causal);
    const auto expected = at::linear(out.transpose(1, 2).reshape({3, 9, 12}), attention->output->weight);
    EXPECT_LT(difference(attention->forward(x), expected), 1e-12);
  }
}

TEST(Modules, WeightsAreConvexAndAsAsked) {
  auto config = small();
  const auto weights = [&] { return hkt::HierarchicalAttention(config)->weights(); };
  EXPECT_LT(difference(weights(), at::full({2, 3}, 1. / 3)), 1e-7);
  config.weights = {LevelWeights::Kind::uniform, 0};
  EXPECT_LT(difference(weights(), at::full({2, 3}, 1. / 3)), 1e-7);
  config.weights = {LevelWeights::Kind::one_level, 2};
  EXPECT_TRUE(at::equal(weights(), at::tensor({0.f, 0.f, 1.f}).expand({2, 3})));
  hkt::HierarchicalAttention low(small());
  low->to(at::kBFloat16);
  EXPECT_EQ(low->weights().scalar_type(), at::kFloat);
}

TEST(Modules, OneHotWeightsOnLevelZeroAreStandardAttention) {
  auto one = small(), three = small();
  one.levels = 1;
  three.weights = {LevelWeights::Kind::one_level, 0};
  hkt::HierarchicalAttention standard(one), hierarchical(three);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : standard->named_parameters()) {
    hierarchical->named_parameters()[parameter.key()].copy_(parameter.value());
  }
  const auto x = at::randn({2, 10, 12});
  EXPECT_LT(difference(standard->forward(x), hierarchical->forward(x)), 1e-6);
}

TEST(Modules, TheFilterStartsAsTheCausalMean) {
  const auto x = at::randn({2, 8, 4});
  const auto mean = hkt::reference::downsample(x, at::full({2, 4}, 0.5));
  EXPECT_LT(difference(hkt::Downsample(4, Filter::mean, 2)(x), mean), 1e-6);
  EXPECT_LT(difference(hkt::Downsample(4, Filter::depthwise, 2)(x), mean), 1e-6);
  EXPECT_TRUE(hkt::Downsample(4, Filter::mean, 2)->parameters().empty());
  torch::manual_seed(4);
  const auto noise = hkt::Downsample(64, Filter::dense, 2)->weight - 0.5 * at::eye(64);
  EXPECT_NEAR(noise.std().item<double>(), 0.02, 0.002);
  EXPECT_LT(noise.abs().max().item<double>(), 0.15);
}

// B = (M + Mᵀ)/2 with M = W_Q W_Kᵀ: never negative for tied and cone, never without negative values for free.
TEST(Modules, TiedAndConeHaveAPositiveSemidefiniteKernel) {
  for (const auto projections : {Projections::shared, Projections::per_level}) {
    for (const auto psd : {Psd::free, Psd::tied, Psd::cone}) {
      auto config = small();
      config.psd = psd;
      config.projections = projections;
      auto attention = make_model(config)->blocks[0]->as<hkt::Block>()->attention;
      for (int64_t level = 0; level < config.levels; ++level) {
        const auto [w_q, w_k] = attention->projections(level);
        const auto product = at::bmm(w_q.transpose(1, 2), w_k);
        const auto eigenvalues = at::linalg_eigvalsh((product + product.transpose(1, 2)) / 2);
        const double low = eigenvalues.min().item<double>(), high = eigenvalues.max().item<double>();
        if (psd == Psd::free) {
          EXPECT_LT(low, -1e-3 * high);
        } else {
          EXPECT_GE(low, -1e-6 * high);
        }
      }
    }
  }
}

TEST(Modules, AConeStartsAsTheTiedKernelAndIsNotSymmetricInGeneral) {
  auto config = small();
  config.psd = Psd::cone;
  hkt::HierarchicalAttention fresh(config);
  EXPECT_LT(difference(fresh->cone(0), at::eye(6).expand({2, 6, 6})), 1e-7);
  const auto trained = make_model(config)->blocks[0]->as<hkt::Block>()->attention->cone(0);
  EXPECT_GT(difference(trained, trained.transpose(1, 2)), 1e-3);
}

// With rotary positions a score depends on content and distance alone: shifting both tokens leaves it as it was. Not so
// for a cone, whose P acts after the rotation; it keeps the kernel positive semidefinite, which is what it is for.
TEST(Modules, RotaryScoresDependOnTheDistanceOrArePositiveSemidefinite) {
  auto config = small();
  config.positions = Positions::rotary;
  for (const auto psd : {Psd::free, Psd::tied, Psd::cone}) {
    config.psd = psd;
    auto attention = make_model(config)->blocks[0]->as<hkt::Block>()->attention;
    const auto same = at::randn({1, 1, 12}, at::kDouble).expand({1, 16, 12});
    const auto [q, k] = attention->projected({same, same.narrow(1, 0, 8), same.narrow(1, 0, 4)});
    for (std::size_t level = 0; level < 3; ++level) {
      const auto scores = at::matmul(q[level], k[level].transpose(2, 3))[0];
      if (psd != Psd::cone) {
        const auto shifted = scores.slice(1, 1).slice(2, 1);
        EXPECT_LT(difference(shifted, scores.narrow(1, 0, shifted.size(1)).narrow(2, 0, shifted.size(2))), 1e-10);
      }
      if (psd != Psd::free) {
        const auto eigenvalues = at::linalg_eigvalsh((scores + scores.transpose(1, 2)) / 2);
        EXPECT_GE(eigenvalues.min().item<double>(), -1e-9 * eigenvalues.max().item<double>());
      }
    }
    // Level l rotates row m as level 0 rotates row 2^l·m, when the projections are shared.
    EXPECT_LT(difference(q[1], q[0].slice(2, 0, 16, 2)), 1e-12);
    EXPECT_LT(difference(k[2], k[0].slice(2, 0, 16, 4)), 1e-12);
  }
}

TEST(Modules, TrainingAfterInferenceModeWorks) {
  for (const auto positions : {Positions::rotary, Positions::sinusoidal}) {
    auto config = small();
    config.positions = positions;
    hkt::Classifier model(config);
    {
      const c10::InferenceMode inference;
      model(random_tokens(2, 8));
    }
    model(random_tokens(2, 8)).sum().backward();
  }
}

TEST(Modules, DropoutActsInTrainingOnly) {
  auto config = small();
  config.dropout = 0.5;
  hkt::Classifier model(config);
  const auto tokens = random_tokens(2, 9);
  EXPECT_GT(difference(model(tokens), model(tokens)), 1e-3);
  model->eval();
  EXPECT_EQ(difference(model(tokens), model(tokens)), 0);
}

// Which of two tokens stands at the start, a task that needs attention over positions.
TEST(Modules, TrainingLowersTheLoss) {
  torch::manual_seed(11);
  auto config = small();
  config.classes = 11;
  hkt::Classifier model(config);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  const auto tokens = random_tokens(64, 12), labels = tokens.select(1, 0).contiguous();
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const auto loss = at::cross_entropy_loss(model(tokens), labels);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
}

// Whoever checks a file before anything is made of it relies on this table.
TEST(Modules, ParameterShapesAreThoseOfTheModel) {
  ModelConfig config;
  config.width = 24;
  config.feedforward = 10;
  config.max_length = 30;
  config.kernel_size = 3;
  config.blocks = 2;
  for (const auto filter : {Filter::dense, Filter::depthwise, Filter::mean}) {
    for (const auto psd : {Psd::free, Psd::tied, Psd::cone}) {
      for (const auto projections : {Projections::shared, Projections::per_level}) {
        for (const std::int64_t levels : {1, 2, 4}) {
          for (const auto positions : {Positions::none, Positions::learned, Positions::rotary, Positions::sinusoidal}) {
            config.filter = filter;
            config.psd = psd;
            config.projections = projections;
            config.levels = levels;
            config.positions = positions;
            config.weights.kind =
                positions == Positions::rotary ? LevelWeights::Kind::uniform : LevelWeights::Kind::learned;
            std::map<std::string, std::vector<std::int64_t>> shapes;
            std::int64_t count = 0;
            for (const auto& parameter : hkt::Classifier(config)->named_parameters()) {
              shapes[parameter.key()] = parameter.value().sizes().vec();
              count += parameter.value().numel();
            }
            EXPECT_EQ(hkt::parameter_shapes(config), shapes);
            EXPECT_EQ(hkt::count_parameters(config), count);
          }
        }
      }
    }
  }
}

TEST(Modules, ParameterShapesOfOtherAttention) {
  for (const auto& option : options) {
    const auto config = config_of(option);
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const auto& parameter : hkt::Classifier(config)->named_parameters())
      shapes[parameter.key()] = parameter.value().sizes().vec();
    EXPECT_EQ(hkt::parameter_shapes(config), shapes) << option.name;
  }
}

TEST(Modules, LearnedPositionsStartAtTheirScale) {
  for (const double scale : {0.02, 1.0}) {
    auto config = small();
    config.positions = Positions::learned;
    config.max_length = 4000;
    config.position_scale = scale;
    torch::manual_seed(1);
    EXPECT_NEAR(hkt::Classifier(config)->positions.std().item<double>(), scale, 0.02 * scale);
  }
}

TEST(Modules, LengthsOfEitherIntegerType) {
  torch::manual_seed(0);
  hkt::Classifier model((ModelConfig()));
  model->eval();
  const auto tokens = at::randint(256, {2, 9}, at::kLong), lengths = at::tensor({9, 4}, at::kLong);
  EXPECT_TRUE(at::equal(model->forward(tokens, lengths), model->forward(tokens, lengths.to(at::kInt))));
}

// Tables of positions grow as they are needed, and what was computed for short inputs stays the same.
TEST(Modules, TablesOfPositionsDoNotDependOnWhatWasThereBefore) {
  for (const auto positions : {Positions::sinusoidal, Positions::rotary}) {
    ModelConfig config;
    config.positions = positions;
    config.max_length = 1 << 24;  // nobody has memory for a table of that
    torch::manual_seed(0);
    hkt::Classifier grown(config), fresh(config);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : fresh->named_parameters())
      parameter.value().copy_(grown->named_parameters()[parameter.key()]);
    grown->eval();
    fresh->eval();
    const auto tokens = at::randint(256, {1, 700}, at::kLong);
    const auto before = grown->forward(tokens.narrow(1, 0, 20));
    EXPECT_TRUE(at::equal(grown->forward(tokens), fresh->forward(tokens)));
    EXPECT_TRUE(at::equal(grown->forward(tokens.narrow(1, 0, 20)), before));
  }
}

TEST(Modules, BadInputsAreNamed) {
  hkt::Classifier model(small());
  const auto tokens = random_tokens(2, 6);
  const auto expect_error = [&](const at::Tensor& bad, const std::optional<at::Tensor>& lengths,
                                const std::string& expected) {
    expect_within(expected, message_of<c10::Error>([&] { model(bad, lengths); }));
  };
  expect_error(tokens[0], {}, "tokens has shape [6]; Classifier needs [batch, length]");
  expect_error(tokens.to(at::kInt), {}, "tokens has dtype Int; Classifier needs int64");
  expect_error(tokens.to(at::kFloat), {}, "tokens has dtype Float");
  expect_error(random_tokens(1, 41), {}, "tokens has length 41; this Classifier takes at most 40 (max_length)");
  expect_error(tokens + 11, {}, "; this Classifier takes 0 to 10 (vocab - 1)");
  expect_error(at::full({1, 1}, -3, at::kLong), {}, "tokens contains -3");
  expect_error(tokens, at::tensor({1}, at::kLong), "lengths has shape [1]; Classifier needs [2]");
  expect_error(tokens, at::ones({2, 1}, at::kLong), "lengths has shape [2, 1]");
  expect_error(tokens, at::tensor({1, 2}, at::kFloat), "lengths has dtype Float");
  expect_error(tokens, at::tensor({1, 7}, at::kLong),
               "lengths contains 7; it must be from 0 to the length of tokens, 6");
  expect_error(tokens, at::tensor({-1, 6}, at::kLong), "lengths contains -1");

  auto config = small();
  config.heads = 5;
  using Refused = std::invalid_argument;
  expect_within("model.width is 12", message_of<Refused>([&] { hkt::Classifier bad(config); }));
  expect_within("model.width is 12", message_of<Refused>([&] { hkt::HierarchicalAttention bad(config); }));
  expect_within("model.width is 12", message_of<Refused>([&] { hkt::Block bad(config); }));
  hkt::HierarchicalAttention attention(small());
  expect_within("x has shape [2, 3, 5]", message_of<c10::Error>([&] { attention(at::zeros({2, 3, 5})); }));
  expect_within("kernel_size is 0", message_of<c10::Error>([&] { hkt::Downsample bad(4, Filter::dense, 0); }));
}

}  // namespace
