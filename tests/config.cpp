// SPDX-License-Identifier: Apache-2.0
// The config: JSON there and back, defaults, and one clear sentence for everything that is wrong with one.
#include "hkt/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "errors.h"

namespace {

std::string with_model(const std::string& members) { return R"({"format": 1, "model": {)" + members + "}}"; }

std::string error_of(const std::string& text) {
  return message_of<std::invalid_argument>([&] { hkt::Config::from_json(text); });
}

TEST(Config, MissingKeysTakeTheDefaults) {
  EXPECT_EQ(hkt::Config::from_json(R"({"format": 1})"), hkt::Config());
  EXPECT_EQ(hkt::Config::from_json(with_model("")), hkt::Config());
  const auto config = hkt::Config::from_json(with_model(R"("levels": 5, "dropout": 0)"));
  EXPECT_EQ(config.model.levels, 5);
  EXPECT_EQ(config.model.dropout, 0);
  EXPECT_EQ(config.model.width, 128);
}

TEST(Config, EveryKeyIsWritten) {
  const std::vector<std::string> keys = {"kind",
                                         "levels",
                                         "heads",
                                         "key_heads",
                                         "width",
                                         "blocks",
                                         "feedforward",
                                         "filter",
                                         "kernel_size",
                                         "projections",
                                         "weights",
                                         "positions",
                                         "mask",
                                         "psd",
                                         "short_convolution",
                                         "convolution_taps",
                                         "dropout",
                                         "vocab",
                                         "biases",
                                         "filter_on",
                                         "max_length",
                                         "convolution_on",
                                         "attention",
                                         "window",
                                         "globals",
                                         "random_keys",
                                         "features",
                                         "block_size",
                                         "position_scale"};
  const auto expect_keys = [&](const hkt::Config& config, const std::vector<std::string>& own) {
    const auto json = nlohmann::json::parse(config.to_json());
    EXPECT_EQ(json["format"], 1);
    EXPECT_EQ(json["model"].size(), keys.size() + own.size());
    for (const auto* some : {&keys, &own})
      for (const auto& key : *some) EXPECT_TRUE(json["model"].contains(key)) << key;
  };
  expect_keys({}, {"classes", "pooling"});
  hkt::Config language;
  language.model.kind = hkt::ModelKind::language;
  language.model.mask = hkt::Mask::causal;
  expect_keys(language, {"tied"});
}

TEST(Config, ALanguageModelHasItsOwnKeys) {
  const auto with = [](const std::string& rest) {
    return with_model(R"("kind": "language", "mask": "causal", )" + rest);
  };
  EXPECT_EQ(hkt::Config::from_json(with(R"("key_heads": 2, "tied": true)")).model.key_head_count(), 2);
  expect_within("model has the unknown key \"classes\"", error_of(with(R"("classes": 2)")));
  expect_within("model has the unknown key \"tied\"", error_of(with_model(R"("tied": true)")));
  expect_within("model.mask is \"none\"; a language model needs \"causal\"",
                error_of(with_model(R"("kind": "language")")));
  expect_within("model.key_heads is 3; it must divide model.heads, 4", error_of(with(R"("key_heads": 3)")));
  expect_within("model.filter_on is \"projected\"", error_of(with(R"("filter_on": "projected")")));
  expect_within("model.key_heads is 2; where keys are computed from queries",
                error_of(with(R"("key_heads": 2, "psd": "tied")")));
}

TEST(Config, ThereAndBackIsTheSame) {
  using namespace hkt;
  Config config;
  EXPECT_EQ(Config::from_json(config.to_json()), config);
  config.model = {.levels = 8,
                  .heads = 3,
                  .width = 48,
                  .blocks = 7,
                  .feedforward = 5,
                  .filter = Filter::mean,
                  .kernel_size = 4,
                  .projections = Projections::per_level,
                  .weights = {LevelWeights::Kind::one_level, 7},
                  .positions = Positions::rotary,
                  .mask = Mask::causal,
                  .psd = Psd::cone,
                  .pooling = Pooling::last,
                  .dropout = 0.123456789012345,
                  .classes = 2,
                  .vocab = 17,
                  .max_length = 4096};
  EXPECT_EQ(Config::from_json(config.to_json()), config);
  config.model.weights = {LevelWeights::Kind::uniform, 0};
  config.model.filter = Filter::depthwise;
  config.model.psd = Psd::tied;
  config.model.positions = Positions::none;
  EXPECT_EQ(Config::from_json(config.to_json()), config);
}

TEST(Config, ErrorsNameTheThingAndWhatIsAllowed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "the config is not JSON"},
      {"{", "the config is not JSON"},
      {'"' + std::string(100'000, 'x'), "…"},
      {"[1]", "the config is [1]; it must be an object"},
      {"{}", "the config has no \"format\"; it must be 1"},
      {R"({"format": 2})", "format is 2; it must be an integer from 1 to 1"},
      {R"({"format": "1"})", "format is \"1\""},
      {R"({"format": 1, "mdoel": {}})", "the config has the unknown key \"mdoel\"; the nearest known one is \"model\""},
      {R"({"format": 1, "model": 3})", "model is 3; it must be an object"},
      {R"({"format": 1, "format": 1})", "the config has the key \"format\" twice"},
      {with_model(R"("levels": 2, "levels": 3)"), "the config has the key \"levels\" twice"},
      {with_model(R"("levls": 2)"), "model has the unknown key \"levls\"; the nearest known one is \"levels\""},
      {with_model(R"("kernelsize": 2)"), "the nearest known one is \"kernel_size\""},
      {with_model(R"("levels": 0)"), "model.levels is 0; it must be an integer from 1 to 8"},
      {with_model(R"("levels": 9)"), "model.levels is 9"},
      {with_model(R"("levels": 3.0)"), "model.levels is 3.0; it must be an integer"},
      {with_model(R"("levels": true)"), "model.levels is true"},
      {with_model(R"("levels": "3")"), "model.levels is \"3\""},
      {with_model(R"("levels": null)"), "model.levels is null"},
      {with_model(R"("vocab": 18446744073709551615)"), "model.vocab is 18446744073709551615"},
      {with_model(R"("width": -128)"), "model.width is -128"},
      {with_model(R"("width": 130)"), "model.width is 130; it must be a multiple of model.heads, 4"},
      {with_model(R"("width": 2048)"), "model.width / model.heads is 512; it must be from 1 to 256"},
      {with_model(R"("width": 12, "positions": "rotary")"), "is 3; it must be even for \"rotary\" positions"},
      {with_model(R"("filter": "densse")"),
       "model.filter is \"densse\"; it must be one of \"dense\", \"depthwise\", \"mean\" (nearest: \"dense\")"},
      {with_model(R"("psd": 1)"), "model.psd is 1; it must be one of \"free\", \"tied\", \"cone\"."},
      {with_model(R"("weights": 3)"), "model.weights is 3; it must be below model.levels, 3"},
      {with_model(R"("weights": -1)"), "model.weights is -1; it must be \"learned\", \"uniform\" or the number"},
      {with_model(R"("weights": 18446744073709551615)"), "model.weights is 18446744073709551615"},
      {with_model(R"("weights": 0.0)"), "model.weights is 0.0"},
      {with_model(R"("weights": "mean")"), "model.weights is \"mean\""},
      {with_model(R"("dropout": 1)"), "model.dropout is 1; it must be a number from 0.0 to below 1.0"},
      {with_model(R"("dropout": -0.1)"), "model.dropout is -0.1"},
      {with_model(R"("dropout": "0.1")"), "model.dropout is \"0.1\""},
      {with_model(R"("attention": "longformer", "levels": 1)"),
       "model.attention is \"longformer\"; it must be one of \"hkt\", \"window\", \"bigbird\", \"linformer\", "
       "\"performer\", "
       "\"h1d\" (nearest: "},
      {with_model(R"("attention": "window")"), "model.levels is 3; where model.attention is \"window\" it must be 1."},
      {with_model(R"("attention": "h1d", "levels": 1, "block_size": 5)"), "model.block_size is 5; it must be even."},
      {with_model(R"("attention": "linformer", "levels": 1, "mask": "causal")"), "\"linformer\" has no causal form"},
      {with_model(R"("attention": "bigbird", "levels": 1, "psd": "tied")"), "it must be \"free\""},
      {with_model(R"("attention": "performer", "levels": 1, "features": 0)"), "model.features is 0"},
      {with_model(R"("kind": "language", "mask": "causal", "levels": 1, "attention": "h1d")"),
       "model.attention is \"h1d\"; a language model needs \"hkt\"."},
      {with_model(R"("position_scale": -1)"), "model.position_scale is -1"},
      {with_model(R"("window": -1)"), "model.window is -1"},
      {with_model(R"("kernel_size": 0)"), "model.kernel_size is 0"},
      {with_model(R"("max_length": 0)"), "model.max_length is 0"},
      {with_model("\"\xff\": 1"), "the config is not JSON"},
  };
  for (const auto& [text, expected] : bad) {
    const auto message = error_of(text);
    SCOPED_TRACE(text);
    expect_within(expected, message);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u) << message;
  }
}

TEST(Config, StructsFilledInByCodeAreCheckedToo) {
  hkt::Config config;
  config.model.heads = 0;
  EXPECT_THROW(config.to_json(), std::invalid_argument);
  config.model.heads = 5;
  EXPECT_THROW(hkt::check(config.model), std::invalid_argument);
}

TEST(Config, LongAndBrokenTextsAreRefusedAndNothingElseHappens) {
  expect_within("the config is nested", error_of(std::string(100000, '[')));
  const auto long_key = error_of(with_model("\"" + std::string(100000, 'x') + "\": 1"));
  expect_within("model has the unknown key \"xxx", long_key);
  EXPECT_LT(long_key.size(), 300u);
  const std::string good = hkt::Config().to_json();
  std::mt19937 generator(7);
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int flips = 1 + static_cast<int>(generator() % 3); flips > 0; --flips) {
      text[generator() % text.size()] = static_cast<char>(generator() % 256);
    }
    try {
      const auto config = hkt::Config::from_json(text);
      EXPECT_EQ(hkt::Config::from_json(config.to_json()), config) << text;
      ++taken;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()), "");
      EXPECT_LT(std::string(error.what()).size(), 300u) << error.what();
    }
  }
  EXPECT_GT(taken, 0) << "the test must change digits, too";
  EXPECT_LT(taken, 1500) << "most of what is broken is taken";
}

}  // namespace
