// SPDX-License-Identifier: Apache-2.0
// The experiments with classifiers: the paper's tables, ablations, stronger baselines.
#include <fmt/format.h>

#include <algorithm>

#include "plans.h"

namespace hkt::experiments {
namespace {

const std::vector<Changes>& learning_rates() {
  static const std::vector<Changes> rates = {{"train.learning_rate=2.5e-4"},
                                             {"train.learning_rate=5e-4"},
                                             {"train.learning_rate=1e-3"},
                                             {"train.learning_rate=2e-3"}};
  return rates;
}

// The paper's comparison, with the baselines it lacks.
void main_table(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const auto standard = hkt.with({"model.levels=1"});
  models.push_back(variant(standard, "standard", "standard attention", {}));
  if (budget == Budget::full) {
    protocol.seeds = {0, 1, 2};
    protocol.examined = true;
    models.push_back(variant(standard, "matched", "standard, as many parameters as HKT",
                             {"model.feedforward=" + std::to_string(matching_feedforward(hkt))}, {"standard"}));
    models.push_back(variant(standard, "strong", "standard, rotary, learning rate chosen on validation",
                             {"model.positions=rotary"}, {"standard"}));
    models.back().candidates = learning_rates();
  }
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, {"standard", "matched"}));
  if (budget == Budget::full) {
    models.push_back(variant(hkt, "hkt-rotary",
                             "HKT, " + levels_of(hkt) + ", rotary, learning rate chosen on validation",
                             {"model.positions=rotary"}, {"standard", "strong"}));
    models.back().candidates = learning_rates();
  }
}

// Each tuned on validation, with as many candidates for standard attention as for HKT.
void best(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  const auto own = name_of(hkt.config().model.positions);
  auto& models = protocol.models;
  models.push_back(
      variant(hkt, "standard-best", "standard, positions and learning rate chosen on validation", {"model.levels=1"}));
  models.push_back(variant(hkt, "hkt-best",
                           "HKT, " + levels_of(hkt) + ", positions, filter and learning rate chosen on validation", {},
                           {"standard-best"}));
  for (const auto& positions : {own, std::string("rotary")}) {
    for (const auto& rate : learning_rates()) {
      models[0].candidates.push_back({"model.positions=" + positions, rate.front()});
    }
    for (const Changes& filter : {Changes{}, Changes{"model.filter=depthwise", "model.kernel_size=4"}}) {
      for (const std::string rate : {"5e-4", "1e-3"}) {
        models[1].candidates.push_back({"model.positions=" + positions, "train.learning_rate=" + rate});
        models[1].candidates.back().insert(models[1].candidates.back().end(), filter.begin(), filter.end());
      }
    }
  }
  if (budget == Budget::full) protocol.seeds = {0, 1, 2};
}

// The Cartesian product.
std::vector<Changes> combined(const std::vector<Changes>& first, const Changes& second) {
  std::vector<Changes> all;
  for (const auto& changes : first) {
    for (const auto& change : second) {
      all.push_back(changes);
      all.back().push_back(change);
    }
  }
  return all;
}

// Tuned over batch size, dropout and positions, with the same candidates for both.
void recipe(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  const auto own = name_of(hkt.config().model.positions);
  const std::string chosen = "batch, dropout and positions chosen on validation";
  auto& models = protocol.models;
  models.push_back(variant(hkt, "standard-recipe", "standard, " + chosen, {"model.levels=1"}));
  models.push_back(variant(hkt, "hkt-recipe", "HKT, " + levels_of(hkt) + ", " + chosen, {}, {"standard-recipe"}));
  const std::vector<Changes> positions = {{"model.positions=" + own}, {"model.positions=rotary"}};
  for (auto& model : models) {
    model.candidates =
        combined(combined(positions, {"train.batch=64", "train.batch=32"}), {"model.dropout=0.1", "model.dropout=0"});
  }
  if (budget == Budget::full) protocol.seeds = {0, 1, 2};
}

// Equal parameter counts, tuned over dropout and higher learning rates, with the same candidates for both.
void rates(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  const std::string chosen = "learning rate and dropout chosen on validation";
  auto& models = protocol.models;
  models.push_back(variant(hkt, "matched-rates", "standard, as many parameters as HKT, " + chosen,
                           {"model.levels=1", "model.feedforward=" + std::to_string(matching_feedforward(hkt))}));
  models.push_back(variant(hkt, "hkt-rates", "HKT, " + levels_of(hkt) + ", " + chosen, {}, {"matched-rates"}));
  const std::vector<Changes> dropouts = {{"model.dropout=0.1"}, {"model.dropout=0"}};
  for (auto& model : models) {
    model.candidates = combined(dropouts, {"train.learning_rate=1e-3", "train.learning_rate=2e-3",
                                           "train.learning_rate=4e-3", "train.learning_rate=8e-3"});
  }
  if (budget == Budget::full) protocol.seeds = {0, 1, 2};
}

// HKT with one change at a time.
void ablation(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  const auto& config = hkt.config();
  if (budget == Budget::full && config.data.task == Task::listops) protocol.seeds = {0, 1};
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}));
  const auto add = [&](const std::string& name, const std::string& what, const Changes& changes,
                       const std::string& baseline = "hkt") {
    models.push_back(variant(hkt, name, what, changes, {baseline}));
  };
  add("standard", "standard attention, which is one level", {"model.levels=1"});
  for (const std::int64_t levels : {2, 3, 4, 5}) {
    if (levels == config.model.levels) continue;
    add("levels-" + std::to_string(levels), std::to_string(levels) + " levels",
        {"model.levels=" + std::to_string(levels)});
  }
  add("uniform", "λ uniform, not learned", {"model.weights=uniform"});
  add("only-0", "level 0 alone", {"model.weights=0"});
  add("only-1", "level 1 alone", {"model.weights=1"});
  add("only-2", "level 2 alone", {"model.weights=2"});
  add("mean", "filter: the mean of two tokens", {"model.filter=mean"});
  add("depthwise", "filter: one for each feature", {"model.filter=depthwise"});
  add("kernel-4", "filter of four tokens", {"model.kernel_size=4"});
  add("depthwise-4", "filter of four tokens, one for each feature", {"model.filter=depthwise", "model.kernel_size=4"});
  add("per-level", "queries and keys projected for each level by itself", {"model.projections=per_level"});
  add("heads-1", "one head", {"model.heads=1"});
  add("heads-1-standard", "one head, standard attention", {"model.heads=1", "model.levels=1"}, "heads-1");
  add("causal", "causal mask", {"model.mask=causal"});
  add("causal-standard", "causal mask, standard attention", {"model.mask=causal", "model.levels=1"}, "causal");
  for (const auto kind : {Positions::sinusoidal, Positions::learned, Positions::rotary, Positions::none}) {
    if (kind == config.model.positions) continue;
    const auto name = name_of(kind);
    const auto what = name == "none" ? std::string("no positions") : name + " positions";
    add("positions-" + name, what, {"model.positions=" + name});
    add("positions-" + name + "-standard", what + ", standard attention", {"model.positions=" + name, "model.levels=1"},
        "positions-" + name);
  }
  add("tied", "kernel positive semidefinite: queries are keys", {"model.psd=tied"});
  add("cone", "kernel positive semidefinite: in a cone", {"model.psd=cone"});
  if (config.data.task == Task::listops) {
    add("shuffled", "batches as they are drawn, not by length", {"train.bucket=1"});
    add("shuffled-standard", "the same, standard attention", {"train.bucket=1", "model.levels=1"}, "shuffled");
  }
}

// Longer sequences than the paper's, with Long Range Arena's figures as context.
void long_range(Protocol& protocol, const ConfigDraft& hkt, Budget budget) {
  auto& models = protocol.models;
  models.push_back(variant(hkt, "standard", "standard attention", {"model.levels=1"}));
  models.push_back(
      variant(hkt, "strong", "standard, rotary", {"model.levels=1", "model.positions=rotary"}, {"standard"}));
  models.push_back(variant(hkt, "hkt", "HKT, " + levels_of(hkt), {}, {"standard"}));
  models.push_back(variant(hkt, "hkt-rotary", "HKT, " + levels_of(hkt) + ", rotary", {"model.positions=rotary"},
                           {"standard", "strong"}));
  if (budget == Budget::quick) return;
  for (auto* model : {&models[1], &models[3]}) {
    model->what += ", learning rate chosen on validation";
    model->candidates = {{"train.learning_rate=5e-4"}, {"train.learning_rate=1e-3"}};
  }
}

// How Gaussian the scores are, by width and epoch. Beyond the preset's width the learning rate falls as 1 / width: with 5e-4
// a width of 512 diverges.
void widths(Protocol& protocol, const ConfigDraft& hkt, Budget) {
  const auto& base = hkt.config();
  for (const std::int64_t width : {32, 64, 128, 256, 512}) {
    const auto text = std::to_string(width);
    const double slower = std::min(1.0, static_cast<double>(base.model.width) / static_cast<double>(width));
    protocol.models.push_back(variant(hkt, "width-" + text, "HKT, " + levels_of(hkt) + ", d = " + text,
                                      {"model.width=" + text, "model.feedforward=" + std::to_string(2 * width),
                                       fmt::format("train.learning_rate={}", slower * base.train.learning_rate)}));
  }
}

}  // namespace

const std::vector<Plan>& classifier_plans() {
  static const Changes two_epochs = {"train.epochs=2"}, four_epochs = {"train.epochs=4"};
  static const std::vector<Plan> all = {
      {{"listops", "the paper's table, ListOps"}, "listops", {}, four_epochs, main_table, Of::paper},
      {{"scifar", "the paper's table, sequential CIFAR-10"}, "scifar", {}, two_epochs, main_table, Of::paper},
      {{"imdb", "the paper's table, byte-level IMDB"}, "imdb", {}, two_epochs, main_table, Of::paper},
      {{"scifar-learned", "sequential CIFAR-10 with learned positions and two blocks"},
       "scifar",
       {"model.positions=learned", "model.blocks=2"},
       two_epochs,
       main_table},
      {{"listops-ablation", "ablation on ListOps: where the gain comes from"}, "listops", {}, four_epochs, ablation},
      {{"imdb-ablation", "ablation on IMDB: where the gain comes from"}, "imdb", {}, two_epochs, ablation},
      {{"listops-best", "ListOps, both models tuned on validation"}, "listops", {}, four_epochs, best},
      {{"imdb-best", "byte-level IMDB, both models tuned on validation"}, "imdb", {}, two_epochs, best},
      {{"scifar-best", "sequential CIFAR-10, both models tuned on validation"}, "scifar", {}, two_epochs, best},
      {{"imdb-recipe", "byte-level IMDB, with smaller batches and without dropout"}, "imdb", {}, two_epochs, recipe},
      {{"scifar-rates", "sequential CIFAR-10, with higher learning rates"}, "scifar", {}, two_epochs, rates},
      {{"listops-lra", "ListOps as in Long Range Arena, T = 2,000"},
       "listops-lra",
       {"train.epochs=4"},
       two_epochs,
       long_range},
      {{"imdb-long", "IMDB with T = 4,096"}, "imdb", {"model.max_length=4096"}, two_epochs, long_range},
      {{"listops-width", "how Gaussian the scores are, d = 32 to 512, over 30 epochs"},
       "listops",
       {"train.epochs=30"},
       four_epochs,
       widths}};
  return all;
}

}  // namespace hkt::experiments
