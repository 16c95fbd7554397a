// SPDX-License-Identifier: Apache-2.0
// The experiments with byte language models: standard attention, the same with a short convolution, and HKT. docs/reproduction.md
// registers what each is expected to show.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "plans.h"

namespace hkt::experiments {
namespace {

const std::vector<Changes>& learning_rates() {
  static const std::vector<Changes> rates = {
      {"train.learning_rate=1e-3"}, {"train.learning_rate=2e-3"}, {"train.learning_rate=4e-3"}};
  return rates;
}

std::string levels_text(std::int64_t levels) { return "model.levels=" + std::to_string(levels); }

bool is_hkt(const ProtocolModel& model) { return model.config.config().model.levels > 1; }

// The share of parameters by which a model may be smaller than HKT before it is widened for a fair comparison.
constexpr double noticeable = 0.01;

// Standard attention, widened where HKT is noticeably larger; the short convolution; HKT with each of these numbers of levels.
void side_by_side(Protocol& protocol, const ConfigDraft& base, const std::vector<std::int64_t>& levels) {
  auto& models = protocol.models;
  const auto standard = base.with({levels_text(1)}), largest = base.with({levels_text(levels.back())});
  models.push_back(variant(standard, "standard", "standard attention", {}));
  std::vector<std::string> baselines = {"standard"};
  const auto parameters = [](const ConfigDraft& draft) {
    return static_cast<double>(count_parameters(draft.config().model));
  };
  if (parameters(largest) > (1 + noticeable) * parameters(standard)) {
    models.push_back(variant(standard, "matched", "standard, as many parameters as HKT",
                             {"model.feedforward=" + std::to_string(matching_feedforward(largest))}, baselines));
    baselines.emplace_back("matched");
  }
  models.push_back(variant(standard, "convolution", "standard, short convolution on queries and keys",
                           {"model.short_convolution=depthwise"}, {"standard"}));
  baselines.emplace_back("convolution");
  for (const auto count : levels) {
    const auto hkt = base.with({levels_text(count)});
    const auto name = levels.size() > 1 ? fmt::format("hkt-{}", count) : "hkt";
    models.push_back(variant(hkt, name, "HKT, " + levels_of(hkt), {}, baselines));
  }
}

// The same candidates for every model.
void tune(Protocol& protocol) {
  for (auto& model : protocol.models) {
    model.what += ", learning rate chosen on validation";
    model.candidates = learning_rates();
  }
}

// Each baseline once more, with so many more steps that it trains about as long as HKT. The factors are assumed before any
// run: the step ratios in the results say how near they come.
void add_equal_time(Protocol& protocol) {
  constexpr double over_standard = 1.4, over_convolution = 1.2;
  for (const auto& [name, factor] :
       {std::pair("standard", over_standard), std::pair("convolution", over_convolution)}) {
    for (const auto& model : std::vector(protocol.models)) {
      if (model.name != name) continue;
      const auto epochs = model.config.config().train.epochs;
      const auto more = std::lround(factor * static_cast<double>(epochs));
      const auto ratio = static_cast<double>(more) / static_cast<double>(epochs);
      auto longer = variant(model.config, model.name + "-longer",
                            fmt::format("{}, {:.3g} times the steps: about as long as HKT", model.name, ratio),
                            {fmt::format("train.epochs={}", more)});
      if (!model.candidates.empty()) longer.chosen_as = model.name;
      protocol.models.push_back(longer);
    }
  }
  for (auto& model : protocol.models) {
    if (is_hkt(model)) model.baselines.insert(model.baselines.end(), {"standard-longer", "convolution-longer"});
  }
}

// On anyone's text.
void own_text(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  if (base.config().data.train.empty()) {
    throw std::invalid_argument(
        "lm learns from text of yours: --set data.train=FILE or FOLDER, and data.pattern for the names of files in a "
        "folder.");
  }
  side_by_side(protocol, base, {base.config().model.levels});
  if (budget == Budget::quick) return;
  tune(protocol);
  add_equal_time(protocol);
  protocol.seeds = {0, 1, 2};
}

// Tuned on the first seed, then three seeds, at equal tokens and at equal time.
void seeds(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  side_by_side(protocol, base, {3, 5});
  if (budget == Budget::quick) return;
  tune(protocol);
  add_equal_time(protocol);
  protocol.seeds = {0, 1, 2};
}

void one_seed(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  seeds(protocol, base, budget);
  protocol.seeds = {0};
}

// One pass over the data, with learning rates chosen on validation, and four passes with the same rates.
void passes(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  side_by_side(protocol, base, {3, 5});
  if (budget == Budget::full) tune(protocol);
  constexpr std::int64_t most = 4;
  for (const auto& model : std::vector(protocol.models)) {
    auto longer = model;
    longer.name += "-4-passes";
    longer.what = longer.what.substr(0, longer.what.find(", learning rate")) + ", four passes";
    longer.config = model.config.with({fmt::format("train.epochs={}", most * model.config.config().train.epochs)});
    longer.candidates.clear();
    if (!model.candidates.empty()) longer.chosen_as = model.name;
    for (auto& baseline : longer.baselines) baseline += "-4-passes";
    protocol.models.push_back(longer);
  }
}

// The number of levels, and filters on queries and keys instead of on their inputs.
void levels(Protocol& protocol, const ConfigDraft& base, Budget) {
  constexpr std::int64_t most = 8;
  auto& models = protocol.models;
  for (std::int64_t count = 1; count <= most; ++count) {
    const auto draft = base.with({levels_text(count)});
    const auto what = count == 1 ? "standard attention, which is one level" : "HKT, " + levels_of(draft);
    models.push_back(variant(draft, fmt::format("levels-{}", count), what, {}));
    if (count > 1) models.back().baselines = {"levels-1"};
  }
  for (const std::int64_t count : {3, 5}) {
    const auto draft = base.with({levels_text(count)});
    models.push_back(variant(draft, fmt::format("projected-{}", count),
                             "HKT, " + levels_of(draft) + ", filters on queries and keys",
                             {"model.filter_on=projected"}, {"levels-1", fmt::format("levels-{}", count)}));
  }
}

// With the learning rate of the preset for all: a run takes too long to be tuned.
void large(Protocol& protocol, const ConfigDraft& base, Budget budget) {
  side_by_side(protocol, base, {5});
  if (budget == Budget::full) add_equal_time(protocol);
}

}  // namespace

const std::vector<Plan>& language_plans() {
  // Small enough for a CPU. That of lm is the second part of `make demo`; its learning rate is the better one of 2e-3 and
  // 4e-3 on validation for standard attention.
  static const Changes small = {"model.width=128",
                                "model.blocks=3",
                                "model.feedforward=512",
                                "model.max_length=256",
                                "train.batch=8",
                                "train.epochs=12",
                                "train.epoch_steps=60",
                                "train.learning_rate=4e-3",
                                "train.validation_tokens=32768"};
  static const Changes tiny = {"model.width=64",        "model.heads=2",        "model.blocks=2",
                               "model.feedforward=128", "model.max_length=256", "train.batch=8",
                               "train.epochs=4",        "train.epoch_steps=25", "train.validation_tokens=16384"};
  // Batches of 32,768 bytes everywhere: 2,747 of them are one pass over the 90 MB.
  static const Changes one_pass = {"model.max_length=1024", "train.batch=32", "train.epochs=11"};
  static const Changes four_thousand_steps = {"model.max_length=1024", "train.batch=32", "train.epochs=16"};
  static const Changes sixteen_thousand = {"model.max_length=16384", "train.batch=2"};
  static const Changes twelve_blocks = {"model.width=512",        "model.heads=8",        "model.blocks=12",
                                        "model.feedforward=2048", "model.dropout=0.1",    "train.learning_rate=1e-3",
                                        "train.epochs=64",        "train.epoch_steps=500"};
  static const std::vector<Plan> all = {
      {{"lm", "language models of your text: --set data.train=FOLDER"}, "lm", {}, small, own_text, Of::none},
      {{"enwik8-passes", "Wikipedia by bytes, T = 1,024: one pass and four passes over the data"},
       "enwik8",
       one_pass,
       tiny,
       passes},
      {{"enwik8", "Wikipedia by bytes, T = 1,024, three seeds"}, "enwik8", four_thousand_steps, tiny, seeds},
      {{"enwik8-long", "Wikipedia by bytes, T = 4,096, three seeds"}, "enwik8", {}, tiny, seeds},
      {{"enwik8-levels", "Wikipedia by bytes, T = 4,096: one to eight levels"}, "enwik8", {}, tiny, levels},
      {{"enwik8-16k", "Wikipedia by bytes, T = 16,384"}, "enwik8", sixteen_thousand, tiny, one_seed},
      {{"enwik8-large", "Wikipedia by bytes, 12 blocks of width 512, T = 4,096"},
       "enwik8",
       twelve_blocks,
       tiny,
       large}};
  return all;
}

}  // namespace hkt::experiments
