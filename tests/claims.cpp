// SPDX-License-Identifier: Apache-2.0
// Every verdict of hkt theory can be another one: examinations of small models, whose numbers are then changed.
#include "theory/claims.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "theory/lab.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

ModelConfig small() {
  ModelConfig config;
  config.heads = 2;
  config.width = 16;
  config.blocks = 1;
  config.feedforward = 16;
  config.vocab = 30;
  config.max_length = 160;
  config.positions = Positions::none;
  return config;
}

json examination_of(const ModelConfig& config) {
  torch::manual_seed(1);
  const auto model = create_model(config);
  std::vector<at::Tensor> sequences;
  for (const std::int64_t length : {128, 140}) sequences.push_back(at::randint(config.vocab, {length}, at::kLong));
  return examine(*model, sequences);
}

std::map<std::string, Verdict> verdicts_of(const json& examination, const ModelConfig& config) {
  std::map<std::string, Verdict> verdicts;
  for (const auto& claim : claims_of(examination, config)) {
    EXPECT_FALSE(claim.rule.empty()) << claim.key;
    EXPECT_FALSE(claim.sentence.empty()) << claim.key;
    verdicts[claim.key] = claim.verdict;
  }
  return verdicts;
}

TEST(Claims, OfAFreeModel) {
  const auto config = small();
  const auto verdicts = verdicts_of(examination_of(config), config);
  EXPECT_EQ(verdicts.at("psd"), Verdict::fails);
  EXPECT_EQ(verdicts.at("psd-implication"), Verdict::open);
  EXPECT_EQ(verdicts.at("decomposition"), Verdict::proved);
  EXPECT_EQ(verdicts.at("independence"), Verdict::holds);
  EXPECT_EQ(verdicts.at("subsumption"), Verdict::proved);
  EXPECT_EQ(verdicts.at("strictness"), Verdict::holds);
  EXPECT_EQ(verdicts.at("depth"), Verdict::proved);
  EXPECT_NE(verdicts.at("gaussianity"), Verdict::holds);
  EXPECT_EQ(verdicts.at("cost"), Verdict::holds) << "4 divides both lengths";
  EXPECT_EQ(verdicts.at("length"), Verdict::holds);
}

// A change to the numbers, and the verdict that it must turn.
struct Change {
  std::string claim;
  Verdict then;
  std::function<void(json&)> make;
};

TEST(Claims, EachCanFail) {
  const auto config = small();
  const auto original = examination_of(config);
  const auto head = [](json& all) -> json& { return all["blocks"][0]["heads"][1]; };
  const std::vector<Change> changes = {
      {"psd", Verdict::holds,
       [](json& all) {
         for (auto& one : all["blocks"][0]["heads"]) one["spectrum"][0]["semidefinite"] = true;
       }},
      {"psd-implication", Verdict::fails, [&](json& all) { head(all)["spectrum"][0]["semidefinite"] = true; }},
      {"decomposition", Verdict::fails, [&](json& all) { head(all)["commutation_error"] = 1e-6; }},
      {"independence", Verdict::fails, [&](json& all) { head(all)["independence"]["smallest_eigenvalue"] = 1e-14; }},
      {"independence", Verdict::fails, [&](json& all) { head(all)["independence"]["matrices"] = 5; }},
      {"subsumption", Verdict::fails,
       [](json& all) { all["blocks"][0]["containment"]["standard_attention_error"] = 1e-6; }},
      {"subsumption", Verdict::open,
       [](json& all) { all["blocks"][0]["containment"]["standard_attention_error"] = nullptr; }},
      {"strictness", Verdict::fails,
       [](json& all) {
         all["blocks"][0]["containment"]["equivariance_gap"] = 1e-14;
         for (auto& one : all["blocks"][0]["heads"]) one["centred_rank"] = 8;
       }},
      {"depth", Verdict::fails, [&](json& all) { head(all)["depth_worst_excess"] = 1e-3; }},
      {"depth", Verdict::fails, [&](json& all) { head(all)["depth_identity_error"] = 1e-3; }},
      {"decay", Verdict::fails, [&](json& all) { head(all)["reach_decay"]["rho"] = 1.5; }},
      {"decay", Verdict::holds,
       [](json& all) {
         for (auto& one : all["blocks"][0]["heads"]) one["reach_decay"]["rho"] = 0.5;
       }},
      {"gaussianity", Verdict::fails, [&](json& all) { head(all)["levels"][0]["normality"]["kurtosis_p"] = 1e-9; }},
      {"gaussianity", Verdict::open,
       [](json& all) {
         for (auto& one : all["blocks"][0]["heads"])
           for (auto& level : one["levels"])
             level["normality"] = {{"skewness_p", 0.01}, {"kurtosis_p", 0.5}, {"kurtosis_ratio", 1.0}};
       }},
      {"cost", Verdict::fails, [](json& all) { all["cost"]["scores"]["largest"] = 1.52; }},
      {"phase", Verdict::fails, [](json& all) { all["phase"][0]["changed"] = 0.1; }},
      {"phase", Verdict::holds,
       [](json& all) {
         for (auto& one : all["phase"]) one["changed"] = 0;
       }},
      {"phase", Verdict::fails,
       [](json& all) {
         for (auto& one : all["phase"]) one["changed"] = 0;
         all["phase"].back()["largest_logit_change"] = 1e-3;
       }},
      {"length", Verdict::fails, [](json& all) { all["length"][0]["dilution"] = 1.0; }},
      {"length", Verdict::fails, [](json& all) { all["length"][0]["score_change"] = 1e-3; }},
  };
  for (const auto& change : changes) {
    auto changed = original;
    change.make(changed);
    EXPECT_EQ(verdicts_of(changed, config).at(change.claim), change.then) << change.claim;
  }
}

// One head may meet the condition; a causal model says nothing about length; one level has neither depth nor phase.
TEST(Claims, OfOtherModels) {
  auto config = small();
  config.psd = Psd::tied;
  auto verdicts = verdicts_of(examination_of(config), config);
  EXPECT_EQ(verdicts.at("psd"), Verdict::holds);
  EXPECT_EQ(verdicts.at("psd-implication"), Verdict::proved);
  EXPECT_EQ(verdicts.at("independence"), Verdict::open);
  config = small();
  config.levels = 1;
  config.mask = Mask::causal;
  verdicts = verdicts_of(examination_of(config), config);
  for (const auto* key : {"depth", "decay", "phase", "strictness", "length"})
    EXPECT_EQ(verdicts.at(key), Verdict::open) << key;
  EXPECT_EQ(verdicts.at("cost"), Verdict::holds);
}

TEST(Claims, OlderFilesHaveKurtosisWithoutItsRatio) {
  EXPECT_DOUBLE_EQ(kurtosis_ratio({{"kurtosis", 300.0}, {"gaussian_kurtosis", 200.0}}).value_or(0), 1.5);
  EXPECT_FALSE(kurtosis_ratio({{"trouble", "too short"}}));
}

}  // namespace
}  // namespace hkt::theory
