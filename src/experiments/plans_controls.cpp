// SPDX-License-Identifier: Apache-2.0
// The control experiments: what HKT's gain is made of, next to a short convolution and to the methods that it is compared with.
// One grid of learning rates for all, five seeds, equal scales of tokens and positions. docs/reproduction.md registers what is
// expected.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plans.h"

namespace hkt::experiments {
namespace {

const std::vector<std::int64_t>& five_seeds() {
  static const std::vector<std::int64_t> seeds = {0, 1, 2, 3, 4};
  return seeds;
}

std::vector<Changes> learning_rates() {
  std::vector<Changes> rates;
  for (const char* rate : {"2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3"})
    rates.push_back({std::string("train.learning_rate=") + rate});
  return rates;
}

const Changes& two_taps() {
  static const Changes changes = {"model.short_convolution=dense", "model.convolution_taps=2"};
  return changes;
}

// The rows to which Linformer reduces keys and values, such that its matrix has as many parameters as HKT's filters.
std::int64_t linformer_features(const ModelConfig& hkt) {
  const auto filters = (hkt.levels - 1) * hkt.kernel_size * hkt.width * hkt.width;
  return std::clamp<std::int64_t>(filters / hkt.max_length, 1, hkt.max_length);
}

// A method that HKT is compared with, with as many parameters as HKT.
ProtocolModel peer(const ConfigDraft& hkt, const std::string& name, const std::string& what, Changes changes) {
  changes.insert(changes.end(), {"model.levels=1", "model.attention=" + name});
  const auto own = hkt.with(changes);
  const auto feedforward = matching_feedforward(own, count_parameters(hkt.config().model));
  return variant(own, name, what, {fmt::format("model.feedforward={}", feedforward)});
}

void add_peers(std::vector<ProtocolModel>& models, const ConfigDraft& hkt) {
  models.push_back(peer(hkt, "window", "Longformer: 64 tokens on each side and one global", {}));
  models.push_back(
      peer(hkt, "bigbird", "BigBird: 64 tokens on each side, 16 global, 64 random keys", {"model.globals=16"}));
  const auto features = linformer_features(hkt.config().model);
  models.push_back(peer(hkt, "linformer", fmt::format("Linformer: keys and values reduced to {} rows", features),
                        {fmt::format("model.features={}", features)}));
  models.push_back(peer(hkt, "performer", "Performer: 128 random features", {"model.features=128"}));
  models.push_back(peer(hkt, "h1d", "H-Transformer-1D: blocks of 16", {}));
}

// Once more with so many more epochs that it trains about as long as HKT. The factor is assumed before any run.
ProtocolModel longer(const ProtocolModel& model, double factor) {
  const auto epochs = model.config.config().train.epochs;
  const auto more = std::lround(factor * static_cast<double>(epochs));
  auto result = variant(model.config, model.name + "-longer",
                        fmt::format("{}, {} epochs for {}: about as long as HKT", model.name, more, epochs),
                        {fmt::format("train.epochs={}", more)});
  result.chosen_as = model.name;
  return result;
}

// How much longer HKT's step takes: of standard attention as results/ has it for these tasks, of the convolution assumed.
double over_standard(Task task) {
  constexpr double listops = 1.40, imdb = 1.28, scifar = 1.20;
  return task == Task::listops ? listops : task == Task::imdb ? imdb : scifar;
}
constexpr double over_convolution = 1.1;

// Rates are chosen on validation and runs have these seeds; with the quick budget nothing is tuned, and one seed is enough.
void choose_rates(Protocol& protocol, Budget budget, const std::vector<std::int64_t>& seeds) {
  for (auto& model : protocol.models) {
    if (budget == Budget::quick)
      model.chosen_as.clear();
    else if (model.chosen_as.empty())
      model.candidates = learning_rates();
  }
  if (budget != Budget::quick) protocol.seeds = seeds;
}

void side_by_side(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const auto standard = hkt.with({"model.levels=1"});
  const auto task = hkt.config().data.task;
  models.push_back(variant(standard, "standard", "standard attention", {}));
  models.push_back(variant(standard, "matched", "standard, as many parameters as HKT",
                           {"model.feedforward=" + std::to_string(matching_feedforward(hkt))}));
  models.push_back(longer(models.front(), over_standard(task)));
  models.push_back(variant(standard, "convolution", "standard, dense convolution of two taps on queries and keys",
                           two_taps(), {"standard"}));
  models.push_back(longer(models.back(), over_convolution));
  add_peers(models, hkt);
  Changes others;
  for (const auto& model : models) others.push_back(model.name);
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, others));
  models.push_back(
      variant(hkt, "hkt-convolution", "HKT with the same convolution", two_taps(), {"convolution", "hkt"}));
  models.push_back(variant(hkt, "level-1", "HKT, level 1 alone", {"model.weights=1"}, {"hkt"}));
  models.back().chosen_as = "hkt";
  protocol.linear = task == Task::imdb || task == Task::listops;
  choose_rates(protocol, budget, five_seeds());
}

// Short convolutions of other kinds, sizes and places, at the rate that is best for the first.
void convolutions(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const auto standard = hkt.with({"model.levels=1"});
  const auto add = [&](const std::string& name, const std::string& what, const Changes& changes) {
    models.push_back(variant(standard, name, what, changes, models.empty() ? Changes{} : Changes{"dense-2"}));
    if (models.size() > 1) models.back().chosen_as = "dense-2";
  };
  const auto kind = [](const std::string& name, int taps, const std::string& on) {
    return Changes{"model.short_convolution=" + name, fmt::format("model.convolution_taps={}", taps),
                   "model.convolution_on=" + on};
  };
  add("dense-2", "dense, two taps, on queries and keys", kind("dense", 2, "qk"));
  add("dense-2-values", "the same, on values too", kind("dense", 2, "qkv"));
  add("dense-4", "dense, four taps", kind("dense", 4, "qk"));
  add("depthwise-2", "one weight for each feature, two taps", kind("depthwise", 2, "qk"));
  add("depthwise-4", "one weight for each feature, four taps", kind("depthwise", 4, "qk"));
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, {"dense-2"}));
  choose_rates(protocol, budget, five_seeds());
}

// Random starts in training, and averaging over the phases of the coarse grids.
void phases(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const Changes random = {"train.random_start=4"};
  const auto standard = hkt.with({"model.levels=1"});
  models.push_back(variant(standard, "standard", "standard attention", {}));
  models.push_back(variant(standard, "standard-random", "standard, trained from random starts", random, {"standard"}));
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, {"standard"}));
  models.push_back(variant(hkt, "hkt-random", "HKT, trained from random starts", random, {"hkt"}));
  protocol.phases = 4;
  if (budget == Budget::full) protocol.seeds = five_seeds();
}

// One and four times the epochs, with the rates that are chosen for one.
void curves(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const auto standard = hkt.with({"model.levels=1"});
  models.push_back(variant(standard, "standard", "standard attention", {}));
  models.push_back(variant(standard, "convolution", "standard, dense convolution of two taps on queries and keys",
                           two_taps(), {"standard"}));
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, {"standard", "convolution"}));
  constexpr std::int64_t most = 4;
  for (const auto& model : std::vector(models)) {
    auto more = variant(model.config, model.name + "-4-times", model.what + ", four times the epochs",
                        {fmt::format("train.epochs={}", most * model.config.config().train.epochs)});
    more.chosen_as = model.name;
    for (const auto& baseline : model.baselines) more.baselines.push_back(baseline + "-4-times");
    models.push_back(more);
  }
  choose_rates(protocol, budget, {0, 1, 2});
}

// What leaving out level 0 costs a language model, at the rate of the preset.
void without_level_0(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  auto& models = protocol.models;
  models.push_back(variant(base, "standard", "standard attention", {"model.levels=1"}));
  models.push_back(variant(base, "hkt", "HKT, 3 levels", {"model.levels=3"}, {"standard"}));
  models.push_back(
      variant(base, "level-1", "HKT, level 1 alone", {"model.levels=2", "model.weights=1"}, {"standard", "hkt"}));
  if (budget == Budget::full) protocol.seeds = {0, 1, 2};
}

}  // namespace

const std::vector<Plan>& controls_plans() {
  static const Changes two_epochs = {"train.epochs=2"}, four_epochs = {"train.epochs=4"};
  static const Changes equal_scales = {"model.position_scale=1"}, fresh = {"data.seed=1"};
  static const Changes tiny = {"model.width=64",        "model.heads=2",        "model.blocks=2",
                               "model.feedforward=128", "model.max_length=256", "train.batch=8",
                               "train.epochs=4",        "train.epoch_steps=25", "train.validation_tokens=16384"};
  static const Changes four_thousand_steps = {"model.max_length=1024", "train.batch=32", "train.epochs=16"};
  static const std::vector<Plan> all = {
      {{"controls-imdb", "byte-level IMDB: HKT beside a short convolution and its peers, all tuned alike"},
       "imdb",
       equal_scales,
       two_epochs,
       side_by_side},
      {{"controls-listops", "the same on ListOps, with data of its own"}, "listops", fresh, four_epochs, side_by_side},
      {{"controls-curves", "byte-level IMDB: one and four times the epochs"}, "imdb", equal_scales, two_epochs, curves},
      {{"controls-phase", "byte-level IMDB: where sequences begin, in training and in use"},
       "imdb",
       equal_scales,
       two_epochs,
       phases},
      {{"controls-scifar", "the same as controls-imdb on sequential CIFAR-10"}, "scifar", {}, two_epochs, side_by_side},
      {{"controls-kinds", "byte-level IMDB: kinds of short convolution"},
       "imdb",
       equal_scales,
       two_epochs,
       convolutions},
      {{"enwik8-no-level-0", "Wikipedia by bytes, T = 1,024: level 1 alone"},
       "enwik8",
       four_thousand_steps,
       tiny,
       without_level_0}};
  return all;
}

}  // namespace hkt::experiments
