// SPDX-License-Identifier: Apache-2.0
// Scoring a split several times, each time without one more of the first tokens.
#include "train/phases.h"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <filesystem>
#include <stdexcept>

#include "files/regular_file.h"

namespace hkt::train {

using nlohmann::ordered_json;

void check_phases(const Config& config) {
  if (config.model.kind == ModelKind::language)
    throw std::invalid_argument("phases are for classifiers; this is a language model.");
  if (config.data.task == Task::listops)
    throw std::invalid_argument("phases leave out first tokens; an expression of ListOps cannot be cut.");
}

PhaseScore evaluate_phases(TransformerImpl& model, const data::Split& split, const Config& config, at::Device device,
                           std::int64_t phases, const Watch& watch) {
  check_phases(config);
  PhaseScore score;
  at::Tensor labels, sum;
  for (std::int64_t skip = 0; skip <= phases; ++skip) {
    const auto part = [&](std::int64_t done, std::int64_t total) {
      if (watch) watch(skip * total + done, (phases + 1) * total);
    };
    auto own = evaluate(model, split, config, device, part, skip);
    const auto answers = own.logits.argmax(1);
    if (skip == 0) labels = answers;
    score.starts.push_back({own.tally.accuracy(), answers.ne(labels).to(at::kDouble).mean().item<double>()});
    if (skip == phases) break;
    const auto probabilities = at::softmax(own.logits.to(at::kDouble), 1);
    sum = sum.defined() ? sum + probabilities : probabilities;
    if (skip == 0) score.mean.labels = own.labels;
  }
  const auto logits = (sum / static_cast<double>(phases)).log();
  auto& mean = score.mean;
  mean.logits = logits.to(at::kFloat);
  mean.tally.predictions = split.size();
  mean.tally.correct = mean.logits.argmax(1).eq(mean.labels).sum().item<std::int64_t>();
  mean.tally.loss = -logits.gather(1, mean.labels.unsqueeze(1)).sum().item<double>();
  return score;
}

ordered_json phases_json(const PhaseScore& score, const std::string& split, const std::string& model) {
  ordered_json json = {{"phases", score.starts.size() - 1}, {"split", split}, {"model", model}};
  for (const auto& start : score.starts)
    json["starts"].push_back({{"accuracy", start.accuracy}, {"changed", start.changed}});
  json["mean_accuracy"] = score.mean.tally.accuracy();
  return json;
}

std::optional<ordered_json> read_phases(const RunDirectory& run, const std::string& model) {
  std::error_code error;
  if (!std::filesystem::exists(run.phases(), error)) return {};
  auto json = ordered_json::parse(read_file(run.phases()), nullptr, false);
  try {
    if (json.at("split") != "test" || json.at("model") != model) return {};
    json.at("mean_accuracy").get<double>();
    for (const auto& start : json.at("starts")) {
      start.at("accuracy").get<double>();
      start.at("changed").get<double>();
    }
  } catch (const ordered_json::exception&) {
    return {};
  }
  return json;
}

}  // namespace hkt::train
