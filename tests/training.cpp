// SPDX-License-Identifier: Apache-2.0
// The parts of training: batches, optimiser and schedule, statistics, parameter counts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "data/batches.h"
#include "data/dataset.h"
#include "data/listops_expression.h"
#include "experiments/comparison.h"
#include "experiments/protocol.h"
#include "experiments/record.h"
#include "train/learner.h"
#include "train/optimizer.h"
#include "train/presets.h"
#include "train/training_data.h"

namespace {

using namespace hkt;

// Sequences of these lengths; token j of sequence i is i + j, modulo 200, plus 1.
data::Split split_of(const std::vector<std::int64_t>& lengths) {
  data::Sequences sequences;
  for (std::int64_t i = 0; i < std::ssize(lengths); ++i) {
    std::vector<std::uint8_t> tokens;
    for (std::int64_t j = 0; j < lengths[static_cast<std::size_t>(i)]; ++j)
      tokens.push_back(static_cast<std::uint8_t>((i + j) % 200 + 1));
    sequences.add(tokens, i % 3);
  }
  return data::Split(data::part_of(std::move(sequences)));
}

std::vector<std::int64_t> random_lengths(std::int64_t count) {
  const auto lengths = at::randint(0, 60, {count}, at::kLong);
  return {lengths.data_ptr<std::int64_t>(), lengths.data_ptr<std::int64_t>() + count};
}

TEST(Batches, EverySequenceIsThereOnce) {
  const auto split = split_of(random_lengths(1000));
  for (const auto& order :
       {data::training_order(split, {.batch = 7}, 3, 1), data::evaluation_order(split, {.batch = 7})}) {
    std::multiset<std::int64_t> seen;
    for (const auto& batch : order) {
      EXPECT_LE(batch.size(), 7u);
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 1000u);
  }
}

TEST(Batches, SeedAndEpochAloneDecideTheOrder) {
  const auto split = split_of(random_lengths(500));
  const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
    return data::training_order(split, {.batch = 16}, seed, epoch);
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  EXPECT_NE(order(1, 2), order(2, 2));
}

TEST(Batches, SequencesToLookAtAreBalancedByLabel) {
  const auto split = split_of(random_lengths(600));
  const auto labels_of = [&](const std::vector<std::int64_t>& drawn) {
    std::map<std::int64_t, int> counts;
    for (const auto i : drawn) ++counts[split.label(i)];
    return counts;
  };
  for (const std::uint64_t seed : {0, 1, 2}) {
    const auto drawn = data::draw_balanced(split, {.count = 12, .wanted_length = 30, .seed = seed});
    EXPECT_EQ(labels_of(drawn), (std::map<std::int64_t, int>{{0, 4}, {1, 4}, {2, 4}}));
    EXPECT_EQ(std::set<std::int64_t>(drawn.begin(), drawn.end()).size(), 12u);
    for (const auto i : drawn) EXPECT_GE(std::ssize(split.tokens(i)), 30);
    EXPECT_EQ(drawn, data::draw_balanced(split, {.count = 12, .wanted_length = 30, .seed = seed}));
    EXPECT_NE(drawn, data::draw_balanced(split, {.count = 12, .wanted_length = 30, .seed = seed + 3}));
  }
  // Not the longest: over many seeds nearly every sequence that is long enough comes up.
  std::set<std::int64_t> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    for (const auto i : data::draw_balanced(split, {.count = 12, .wanted_length = 30, .seed = seed})) seen.insert(i);
  std::int64_t long_enough = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) long_enough += std::ssize(split.tokens(i)) >= 30;
  EXPECT_GE(std::ssize(seen), long_enough * 9 / 10);
}

TEST(Batches, SequencesToLookAtWhereThereAreFew) {
  const auto split = split_of({3, 0, 5, 9, 2});  // labels 0, 1, 2, 0, 1; the second is empty
  const auto all = data::draw_balanced(split, {.count = 10, .wanted_length = 4});
  EXPECT_EQ(std::multiset<std::int64_t>(all.begin(), all.end()), (std::multiset<std::int64_t>{0, 2, 3, 4}));
  const auto lengths = [&] {
    std::multiset<std::int64_t> found;
    for (const auto& tokens : data::balanced_sequences(split, {.max_length = 4, .count = 10}))
      found.insert(tokens.size(0));
    return found;
  }();
  EXPECT_EQ(lengths, (std::multiset<std::int64_t>{2, 3, 4, 4})) << "cut at max_length";
  EXPECT_EQ(data::draw_balanced(split, {.count = 2}).size(), 2u) << "fewer sequences than labels";
  EXPECT_TRUE(data::draw_balanced(split_of({0, 0}), {.count = 2}).empty());
}

// The same on every machine and with every standard library.
TEST(Batches, SequencesToLookAtArePortable) {
  EXPECT_EQ(data::draw_balanced(split_of(std::vector<std::int64_t>(30, 5)), {.count = 6, .seed = 7}),
            (std::vector<std::int64_t>{26, 19, 27, 2, 4, 21}));
}

TEST(Batches, TokensLengthsAndPadding) {
  const auto split = split_of({3, 0, 5, 9});
  const std::vector<std::int64_t> sequences = {2, 0, 1, 3};
  const auto batch = data::make_batch(split, sequences, {.batch = 4, .max_length = 6});
  EXPECT_TRUE(batch.tokens.equal(
      torch::tensor({{3, 4, 5, 6, 7, 0}, {1, 2, 3, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {4, 5, 6, 7, 8, 9}}, at::kLong)))
      << batch.tokens;
  EXPECT_TRUE(batch.lengths.equal(at::tensor({5, 3, 0, 6}, at::kLong)));
  EXPECT_TRUE(batch.labels.equal(at::tensor({2, 0, 1, 0}, at::kLong)));
  EXPECT_EQ(batch.valid_tokens, 14);
  EXPECT_EQ(data::count_cut(split, 6), 1);
  const auto full = data::make_batch(split, sequences, {.batch = 4, .max_length = 20, .full = true});
  EXPECT_EQ(full.tokens.size(1), 20);
}

TEST(Batches, PaddingWastesLittleOnListOps) {
  DataConfig config;
  config.train_samples = 20000;
  config.validation_samples = config.test_samples = 10;
  const auto dataset = data::load(config);
  std::int64_t valid = 0, all = 0;
  const data::Shape shape{.batch = 64, .max_length = 512};
  for (const auto& sequences : data::training_order(dataset.train, shape, 0, 0)) {
    const auto batch = data::make_batch(dataset.train, sequences, shape);
    valid += batch.valid_tokens;
    all += batch.tokens.numel();
  }
  RecordProperty("waste", std::to_string(1 - static_cast<double>(valid) / static_cast<double>(all)));
  EXPECT_GT(static_cast<double>(valid), 0.9 * static_cast<double>(all));
}

TEST(Batches, TheQueueGivesTheOrderFromWhereItIsAsked) {
  const auto split = split_of(random_lengths(300));
  const data::Shape shape{.batch = 8};
  const auto order = data::training_order(split, shape, 5, 0);
  for (const std::size_t first : {std::size_t{0}, std::size_t{11}, order.size()}) {
    data::BatchQueue queue(split, order, shape, first);
    for (std::size_t i = first; i < order.size(); ++i) {
      const auto batch = queue.next();
      if (!batch) FAIL() << "the queue ended early";
      EXPECT_TRUE(batch->tokens.equal(data::make_batch(split, order[i], shape).tokens));
    }
    EXPECT_FALSE(queue.next());
  }
  data::BatchQueue left_early(split, order, shape);  // must not hang when it is destroyed half-read
  left_early.next();
}

TEST(Schedule, RisesThenFallsAsACosine) {
  TrainConfig config;
  config.learning_rate = 2;
  config.warmup = 0.1;
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 0, 100), 0.2);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 9, 100), 2);
  EXPECT_NEAR(train::learning_rate(config, 54, 100), 1, 1e-12);
  EXPECT_NEAR(train::learning_rate(config, 99, 100), 0, 1e-12);
  for (std::int64_t step = 10; step < 100; ++step) {
    EXPECT_LT(train::learning_rate(config, step, 100), train::learning_rate(config, step - 1, 100));
  }
}

class Optimizer : public testing::Test {
 protected:
  static Classifier model() {
    torch::manual_seed(1);
    ModelConfig config;
    config.width = 16;
    config.feedforward = 8;
    config.vocab = 11;
    return Classifier(config);
  }
  static void backward(Classifier& model, int step) {
    torch::manual_seed(step);
    const auto tokens = at::randint(0, 11, {4, 9}, at::kLong);
    const auto logits = model->forward(tokens);
    torch::nn::functional::cross_entropy(logits * 30, at::randint(0, 10, {4}, at::kLong)).backward();
  }
};

TEST_F(Optimizer, AgreesWithTorchsOwnAdamW) {
  auto ours = model(), theirs = model();
  TrainConfig config;
  config.weight_decay = 0.3;
  config.gradient_norm = 0.5;
  train::Optimizer optimizer(*ours, config);
  optimizer.set_learning_rate(0.01);
  std::vector<at::Tensor> matrices, others;
  for (const auto& parameter : theirs->named_parameters()) {
    const bool decays = parameter.value().dim() >= 2 && parameter.key().find("alpha") == std::string::npos;
    (decays ? matrices : others).push_back(parameter.value());
  }
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(0.01).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, options(0.3));
  groups.emplace_back(others, options(0));
  torch::optim::AdamW reference(groups, torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < 5; ++step) {
    backward(ours, step);
    backward(theirs, step);
    const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), 0.5);
    reference.step();
    reference.zero_grad();
    EXPECT_NEAR(optimizer.step().item<double>(), norm, 1e-4 * norm);
    EXPECT_GT(norm, 0.5) << "the test must cut something";
  }
  const auto expected = theirs->named_parameters();
  for (const auto& parameter : ours->named_parameters()) {
    EXPECT_TRUE(at::allclose(parameter.value(), expected[parameter.key()], 1e-4, 1e-5)) << parameter.key();
  }
}

TEST_F(Optimizer, ItsStateGoesOnWhereItStopped) {
  auto straight = model(), resumed = model();
  train::Optimizer first(*straight, {}), before(*resumed, {});
  const auto steps = [](Classifier& model, train::Optimizer& optimizer, int begin, int end) {
    optimizer.set_learning_rate(0.01);
    for (int step = begin; step < end; ++step) {
      backward(model, step);
      optimizer.step();
    }
  };
  steps(straight, first, 0, 6);
  steps(resumed, before, 0, 3);
  train::Optimizer after(*resumed, {});
  after.restore(before.state());
  steps(resumed, after, 3, 6);
  const auto expected = straight->named_parameters();
  for (const auto& parameter : resumed->named_parameters())
    EXPECT_TRUE(parameter.value().equal(expected[parameter.key()]));
  auto cut = before.state();
  cut.pop_back();
  EXPECT_THROW(after.restore(cut), std::runtime_error);
}

TEST(Comparison, SpreadAndTests) {
  const std::vector<double> a = {1, 2, 3}, b = {2, 4, 6.5};
  EXPECT_DOUBLE_EQ(experiments::spread(a).mean, 2);
  EXPECT_DOUBLE_EQ(experiments::spread(a).deviation, 1);
  EXPECT_EQ(experiments::spread(std::vector<double>{5}).deviation, 0);
  // With two degrees of freedom p = 1 − t / sqrt(t² + 2); the differences are 1, 2, 3.5.
  const double mean = 6.5 / 3, deviation = experiments::spread(std::vector<double>{1, 2, 3.5}).deviation;
  const double t = mean / (deviation / std::sqrt(3.0));
  EXPECT_NEAR(experiments::paired_t_test(a, b).value_or(-1), 1 - t / std::sqrt(t * t + 2), 1e-12);
  EXPECT_FALSE(experiments::paired_t_test(std::vector<double>{1}, std::vector<double>{2}));
  EXPECT_FALSE(experiments::paired_t_test(a, std::vector<double>{2, 3, 4}));
  // 1 of 5: 2 · (1 + 5) / 2⁵.
  EXPECT_NEAR(experiments::mcnemar(1, 4), 12.0 / 32, 1e-12);
  EXPECT_NEAR(experiments::mcnemar(4, 1), 12.0 / 32, 1e-12);
  EXPECT_EQ(experiments::mcnemar(3, 3), 1);
  EXPECT_EQ(experiments::mcnemar(0, 0), 1);
  EXPECT_LT(experiments::mcnemar(100, 300), 1e-20);
}

TEST(Comparison, Intervals) {
  const std::vector<double> a = {1, 2, 3}, b = {2, 4, 6.5}, one = {1};
  const auto expect = [](const std::optional<experiments::Interval>& interval, double low, double high) {
    ASSERT_TRUE(interval);
    EXPECT_NEAR(interval->low, low, 1e-8);
    EXPECT_NEAR(interval->high, high, 1e-8);
  };
  // Quantiles by numerical integration of the density: t(0.975; 2) = 4.302652730, t(0.975; 2.757567917) = 3.346733546.
  expect(experiments::paired_interval(a, b), -0.959138073, 5.292471406);
  expect(experiments::welch_interval(a, b), -2.599083991, 6.932417325);
  expect(experiments::prediction_interval(a), 2 - 4.302652730 * std::sqrt(4.0 / 3),
         2 + 4.302652730 * std::sqrt(4.0 / 3));
  // The paired t-test is at the edge where the interval of that confidence touches zero.
  const double p = experiments::paired_t_test(a, b).value_or(-1);
  expect(experiments::paired_interval(a, b, 1 - p), 0, 2 * 6.5 / 3);
  // Of pairs that go up together the difference is known better than the means are.
  const std::vector<double> c = {1.5, 2.6, 3.4};
  EXPECT_EQ(experiments::verdict(3, experiments::paired_interval(a, c)), "higher");
  EXPECT_EQ(experiments::verdict(3, experiments::paired_interval(c, a)), "lower");
  EXPECT_EQ(experiments::verdict(3, experiments::welch_interval(a, c)), "not decided");
  EXPECT_EQ(experiments::verdict(3, experiments::paired_interval(a, b)), "not decided");
  EXPECT_EQ(experiments::verdict(1, experiments::paired_interval(one, one)), "one seed");
  // Undefined.
  EXPECT_FALSE(experiments::paired_interval(one, one));
  EXPECT_FALSE(experiments::paired_interval(a, std::vector<double>{2, 3, 4}));
  EXPECT_FALSE(experiments::welch_interval(a, one));
  EXPECT_FALSE(experiments::welch_interval(std::vector<double>{1, 1}, std::vector<double>{2, 2}));
  EXPECT_THROW(experiments::paired_interval(a, one), std::invalid_argument);
}

TEST(Comparison, HolmCorrectsForTheNumberOfTests) {
  using P = std::optional<double>;
  const std::vector<P> values = {0.04, {}, 0.01, 0.03, 0.005};
  const auto corrected = experiments::holm(values);
  const std::vector<P> expected = {0.06, {}, 0.03, 0.06, 0.02};  // times 1, 3, 2 and 4, none below one before it
  ASSERT_EQ(corrected.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(corrected[i].has_value(), expected[i].has_value());
    EXPECT_NEAR(corrected[i].value_or(0), expected[i].value_or(0), 1e-12) << i;
  }
  EXPECT_EQ(experiments::holm(std::vector<P>{0.8, 0.9}), (std::vector<P>{1, 1}));
  EXPECT_TRUE(experiments::holm(std::vector<P>{}).empty());
}

// The bootstrap of a mean has the width that the normal distribution says, and is the same every time.
TEST(Comparison, ResampledIntervals) {
  torch::manual_seed(2);
  const auto drawn = at::randn({4000}, at::kDouble) + 0.5;
  const std::vector<double> values(drawn.const_data_ptr<double>(), drawn.const_data_ptr<double>() + drawn.numel());
  const auto [low, high] = experiments::resampled_interval(values);
  const auto [mean, deviation] = experiments::spread(values);
  const double half = 1.96 * deviation / std::sqrt(4000.0);
  EXPECT_NEAR(low, mean - half, 0.15 * half);
  EXPECT_NEAR(high, mean + half, 0.15 * half);
  EXPECT_EQ(experiments::resampled_interval(values).low, low);
  EXPECT_EQ(experiments::resampled_interval(std::vector<double>{3}).high, 3);
  EXPECT_THROW(experiments::resampled_interval({}), std::invalid_argument);
}

TEST(Comparison, BitsAreHexadecimal) {
  EXPECT_EQ(experiments::bits_text({}), "");
  EXPECT_EQ(experiments::bits_text({true, false, false, false, true, true, true, true, false, true}), "8f4");
}

// All that the models of a control experiment do not share is what their names say.
TEST(Protocol, ControlsAreTunedAlike) {
  for (const std::string name : {"controls-imdb", "controls-listops", "controls-scifar"}) {
    const auto protocol = experiments::protocol(name, experiments::Budget::full);
    EXPECT_EQ(protocol.seeds.size(), 5u);
    std::map<std::string, Config> configs;
    for (const auto& model : protocol.models) configs[model.name] = model.config.config();
    const auto& hkt = configs.at("hkt");
    const auto size = [](const Config& config) { return static_cast<double>(count_parameters(config.model)); };
    for (const auto& model : protocol.models) {
      const auto& config = configs.at(model.name);
      EXPECT_EQ(config.data, hkt.data);
      EXPECT_EQ(config.model.positions, hkt.model.positions);
      EXPECT_EQ(config.model.position_scale, hkt.model.position_scale);
      EXPECT_EQ(config.model.dropout, hkt.model.dropout);
      EXPECT_EQ(model.candidates.empty(), !model.chosen_as.empty()) << name << " " << model.name;
      if (model.chosen_as.empty()) {
        EXPECT_EQ(model.candidates, protocol.models.front().candidates) << model.name;
      }
      const bool has_longer = model.name.ends_with("-longer");
      EXPECT_EQ(config.train.epochs > hkt.train.epochs, has_longer) << name << " " << model.name;
    }
    for (const std::string model : {"matched", "window", "bigbird", "linformer", "performer", "h1d"}) {
      EXPECT_GE(size(configs.at(model)), size(hkt)) << name << " " << model;
      EXPECT_LT(size(configs.at(model)), 1.01 * size(hkt)) << name << " " << model;
    }
  }
}

TEST(Batches, SequencesBeginWhereTheyAreAskedTo) {
  const auto split = split_of({5, 1, 9});
  const std::vector<std::int64_t> all = {0, 1, 2};
  const auto later = data::make_batch(split, all, {.batch = 3, .max_length = 6, .skip = 2});
  EXPECT_TRUE(later.lengths.equal(at::tensor({3, 1, 6}, at::kLong)));  // a token always remains
  EXPECT_TRUE(later.tokens[0].equal(at::tensor({3, 4, 5, 0, 0, 0}, at::kLong)));
  EXPECT_TRUE(later.tokens[2].equal(at::tensor({5, 6, 7, 8, 9, 10}, at::kLong)));
  std::set<std::int64_t> starts;
  for (std::uint64_t draw = 0; draw < 40; ++draw) {
    const data::Shape shape{.batch = 3, .max_length = 6, .random_starts = 4, .draw = draw};
    const auto batch = data::make_batch(split, all, shape);
    EXPECT_TRUE(batch.tokens.equal(data::make_batch(split, all, shape).tokens));
    starts.insert(batch.tokens[2][0].item<std::int64_t>() - 3);
    EXPECT_EQ(batch.lengths[0].item<std::int64_t>(), 6 - batch.tokens[0][0].item<std::int64_t>());
  }
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 1, 2, 3}));
}

TEST(ListOps, DepthCountsOperators) {
  const auto depth = [](const std::string& text) { return data::listops::depth(data::listops::parse(text)); };
  EXPECT_EQ(depth("7"), 0);
  EXPECT_EQ(depth("[MAX 2 9 ]"), 1);
  EXPECT_EQ(depth("[MAX 2 [MIN 4 7 ] [SM 1 [MED 2 3 ] ] ]"), 3);
}

TEST(Protocol, TheMatchedModelHasAsManyParametersAsHkt) {
  for (const auto& experiment : experiments::experiments_of_all(experiments::Budget::quick)) {
    const auto protocol = experiments::protocol(experiment.name, experiments::Budget::full);
    std::map<std::string, std::int64_t> counts;
    for (const auto& model : protocol.models) {
      counts[model.name] = count_parameters(model.config.config().model);
    }
    EXPECT_GE(counts.at("matched"), counts.at("hkt"));
    EXPECT_LT(static_cast<double>(counts.at("matched")), 1.01 * static_cast<double>(counts.at("hkt")));
    EXPECT_LT(counts.at("standard"), counts.at("hkt"));
    EXPECT_EQ(protocol.seeds.size(), 3u);
  }
}

// Changes without which an experiment has no data.
std::vector<std::string> changes_for(const std::string& experiment) {
  if (experiment == "lm") return {"data.train=books"};
  return {};
}

// The baselines that a model is compared with, and the model whose learning rate it takes, are there; their number.
int expect_neighbours(const experiments::Protocol& protocol, const std::set<std::string>& names) {
  int count = 0;
  for (const auto& model : protocol.models) {
    EXPECT_TRUE(model.chosen_as.empty() || names.contains(model.chosen_as)) << protocol.experiment << " " << model.name;
    for (const auto& baseline : model.baselines) {
      EXPECT_TRUE(names.contains(baseline)) << protocol.experiment << " " << baseline;
      ++count;
    }
  }
  return count;
}

// Each is a config that a model can be made of, under a name of its own, beside baselines that are there.
TEST(Protocol, EveryExperimentIsWhole) {
  int baselines = 0;
  for (const auto budget : {experiments::Budget::quick, experiments::Budget::full}) {
    for (const auto& experiment : experiments::experiments()) {
      const auto protocol = experiments::protocol(experiment.name, budget, changes_for(experiment.name));
      std::set<std::string> names;
      for (const auto& model : protocol.models) {
        EXPECT_TRUE(names.insert(model.name).second) << experiment.name << " has " << model.name << " twice";
        EXPECT_NO_THROW(check(model.config.config().model)) << experiment.name << " " << model.name;
        for (const auto& changes : model.candidates) EXPECT_NO_THROW(model.config.with(changes));
      }
      EXPECT_FALSE(protocol.seeds.empty());
      // The quick budget leaves baselines out.
      if (budget == experiments::Budget::full) baselines += expect_neighbours(protocol, names);
    }
  }
  EXPECT_GT(baselines, 0);
}

TEST(Protocol, AllNeedsNoDataOfTheUsers) {
  std::set<std::string> names;
  for (const auto& experiment : experiments::experiments_of_all(experiments::Budget::full)) {
    names.insert(experiment.name);
    EXPECT_NO_THROW(experiments::protocol(experiment.name, experiments::Budget::full)) << experiment.name;
  }
  EXPECT_FALSE(names.contains("lm"));
  EXPECT_TRUE(names.contains("enwik8"));
  EXPECT_THROW(experiments::protocol("lm", experiments::Budget::quick), std::invalid_argument);
}

// What must be the same for a comparison of language models to be one: data, tokens and size; and the second row of a
// baseline differs from the first in the number of steps alone.
TEST(Protocol, LanguageModelsAreComparedAtEqualTokensAndEqualTime) {
  for (const std::string name : {"lm", "enwik8", "enwik8-long", "enwik8-16k", "enwik8-large"}) {
    const auto protocol = experiments::protocol(name, experiments::Budget::full, changes_for(name));
    std::map<std::string, Config> configs;
    for (const auto& model : protocol.models) configs[model.name] = model.config.config();
    const auto& standard = configs.at("standard");
    const auto size = [](const Config& config) { return static_cast<double>(count_parameters(config.model)); };
    for (const auto& [model, config] : configs) {
      EXPECT_EQ(config.data, standard.data);
      EXPECT_NEAR(size(config) / size(standard), 1, 0.01) << name << " " << model;
      if (!model.ends_with("-longer")) {
        EXPECT_EQ(config.train, standard.train) << name << " " << model;
        continue;
      }
      auto shorter = configs.at(model.substr(0, model.find("-longer")));
      EXPECT_GT(config.train.epochs, shorter.train.epochs);
      shorter.train.epochs = config.train.epochs;
      EXPECT_EQ(config, shorter) << name << " " << model;
    }
    EXPECT_TRUE(configs.contains("standard-longer") && configs.contains("convolution-longer"));
  }
}

TEST(Comparison, APredictionIntervalHoldsAFurtherValueNineteenTimesOfTwenty) {
  EXPECT_FALSE(experiments::prediction_interval(std::vector<double>{1}));
  torch::manual_seed(5);
  int inside = 0;
  constexpr int trials = 4000;
  for (int i = 0; i < trials; ++i) {
    const auto drawn = at::randn({4}, at::kDouble);
    const std::vector<double> values(drawn.const_data_ptr<double>(), drawn.const_data_ptr<double>() + 3);
    const auto interval = experiments::prediction_interval(values);
    ASSERT_TRUE(interval.has_value());
    const double further = drawn[3].item<double>();
    inside += interval && interval->contains(further);
  }
  EXPECT_NEAR(inside, 0.95 * trials, 5 * std::sqrt(0.95 * 0.05 * trials));
}

TEST(Batches, WithoutBucketsTheyAreAsDrawn) {
  const auto split = split_of(random_lengths(600));
  const auto spread = [&](std::int64_t bucket) {  // of lengths within a batch, over all
    std::int64_t sum = 0;
    const data::Shape shape{.batch = 8, .bucket = bucket};
    for (const auto& sequences : data::training_order(split, shape, 3, 1)) {
      const auto lengths = data::make_batch(split, sequences, shape).lengths;
      sum += (lengths.max() - lengths.min()).item<std::int64_t>();
    }
    return sum;
  };
  EXPECT_GT(spread(1), 5 * spread(64));
}

TEST(Learner, LearnsAToyTask) {
  torch::manual_seed(2);
  Config config;
  config.model.width = config.model.feedforward = 32;
  config.model.blocks = 1;
  config.model.dropout = 0;
  config.model.classes = 3;
  std::vector<std::int64_t> lengths(30, 8);
  const auto split = split_of(lengths);
  train::Learner learner(config, at::kCPU);
  const auto before = train::evaluate(*learner.model(), split, config, at::kCPU);
  std::vector<std::int64_t> all(30);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const auto batch = data::make_batch(split, all, {.batch = 30, .max_length = 64});
  double loss = 0;
  for (int step = 0; step < 150; ++step) loss = learner.step(batch, 3e-3).wait().mean_loss;
  const auto after = train::evaluate(*learner.model(), split, config, at::kCPU);
  EXPECT_LT(loss, 0.1);
  EXPECT_EQ(after.tally.accuracy(), 1);
  EXPECT_LT(after.tally.mean_loss(), before.tally.mean_loss());
  EXPECT_TRUE(learner.model()->is_training());
  EXPECT_TRUE(after.labels.equal(at::arange(30, at::kLong) % 3)) << "not in the split's order";
}

// A model that gives every sequence the same label is right for the frequent one, and with weights no better than another.
TEST(TrainingData, TheBestEpochFollowsTheClassWeights) {
  Config config;
  config.model.width = config.model.feedforward = 16;
  config.model.blocks = 1;
  config.model.classes = 2;
  data::Sequences sequences;
  for (int i = 0; i < 20; ++i) sequences.add(std::vector<std::uint8_t>{5, 6, 7}, i < 18 ? 0 : 1);
  data::Dataset dataset;
  dataset.labels = {"often", "rarely"};
  dataset.train = dataset.validation = data::Split(data::part_of(std::move(sequences)));
  Classifier model(config.model);
  const auto quality = [&](ClassWeights weights, std::int64_t always) {
    const at::NoGradGuard no_grad;
    model->head->weight.zero_();
    model->head->bias.zero_();
    model->head->bias[always] = 1;
    config.train.class_weights = weights;
    return train::training_data(dataset, config)->validate(*model, at::kCPU).quality;
  };
  const auto is_better = [&](const train::Quality& first, const train::Quality& second) {
    return train::training_data(dataset, config)->is_better(first, second);
  };
  EXPECT_EQ(quality(ClassWeights::none, 0).weighted_accuracy, quality(ClassWeights::none, 0).accuracy);
  EXPECT_TRUE(is_better(quality(ClassWeights::none, 0), quality(ClassWeights::none, 1)));
  const auto often = quality(ClassWeights::balanced, 0), rarely = quality(ClassWeights::balanced, 1);
  EXPECT_DOUBLE_EQ(often.accuracy, 0.9);
  EXPECT_DOUBLE_EQ(often.weighted_accuracy, 0.5);
  EXPECT_DOUBLE_EQ(rarely.accuracy, 0.1);
  EXPECT_DOUBLE_EQ(rarely.weighted_accuracy, 0.5);
  EXPECT_TRUE(is_better({.accuracy = 0.1, .loss = 2, .weighted_accuracy = 0.6}, often));
}

// Rare classes count by the inverse of their share, in a batch as in parts of it.
TEST(Learner, ClassWeights) {
  Config config;
  config.model.width = config.model.feedforward = 16;
  config.model.blocks = 1;
  config.model.dropout = 0;
  config.model.classes = 3;
  config.train.class_weights = ClassWeights::balanced;
  data::Sequences sequences;
  for (const std::int64_t label : {0, 0, 0, 0, 0, 1, 2, 2}) sequences.add(std::vector<std::uint8_t>{5, 6, 7}, label);
  data::Dataset dataset;
  dataset.labels = {"a", "b", "c"};
  dataset.train = dataset.validation = data::Split(data::part_of(std::move(sequences)));
  const auto weights = train::training_data(dataset, config)->class_weights();
  EXPECT_TRUE(at::allclose(weights, at::tensor({8 / 15.0, 8 / 3.0, 4 / 3.0}, at::kDouble))) << weights;

  std::vector<std::int64_t> all(8);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const auto batch = data::make_batch(dataset.train, all, {.batch = 8, .max_length = 8});
  const auto loss_in_parts = [&](std::int64_t parts) {
    torch::manual_seed(4);
    config.train.accumulate = parts;
    train::Learner learner(config, at::kCPU);
    learner.set_class_weights(weights);
    const auto logits = train::logits_of(*learner.model(), batch, false).detach();
    const auto each = torch::nn::functional::cross_entropy(
        logits, batch.labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    const auto expected = (each * weights.index_select(0, batch.labels)).mean().item<double>();
    const auto values = learner.step(batch, 1e-3).wait();
    EXPECT_NEAR(values.mean_loss, expected, 1e-5);
    return values.gradient_norm;
  };
  EXPECT_NEAR(loss_in_parts(1), loss_in_parts(3), 1e-5);
  config.train.class_weights = ClassWeights::none;
  EXPECT_FALSE(train::training_data(dataset, config)->class_weights().defined());
}

}  // namespace
