// SPDX-License-Identifier: Apache-2.0
// Sentences about accuracy and cost.
#include "experiments/answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "experiments/results.h"

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

// ---- language models: bits per byte, of which less is better

bool is_language(const ordered_json& run) { return run["config"]["model"]["kind"] == "language"; }

// Of a run without a finished epoch.
std::string without_epochs(const ordered_json& run) {
  const auto name = run["name"].get<std::string>();
  if (!run.value("exported", false)) return name + " has not finished an epoch yet.";
  return fmt::format("{} is an exported model ({}): its weights and its config are here, its training is not.", name,
                     run["summary"].get<std::string>());
}

std::string bits_sentence(const ordered_json& run) {
  const auto name = run["name"].get<std::string>();
  if (!run["test"].is_null())
    return fmt::format("{} has {:.3f} bits per byte on test.", name, run["test"]["bits_per_byte"].get<double>());
  if (run["best_validation"].is_null()) return without_epochs(run);
  return fmt::format("{} has {:.3f} bits per byte on validation.", name, run["best_validation"].get<double>());
}

// How a model compares with a baseline: "0.012 less than standard [-0.020, -0.004]".
std::string difference_text(const ordered_json& comparison) {
  const double difference = comparison["difference"];
  auto text = fmt::format("{:.3f} {} than {}", std::abs(difference), difference < 0 ? "less" : "more",
                          comparison["with"].get<std::string>());
  if (const auto& interval = comparison["interval"]; !interval.is_null())
    text += fmt::format(" [{:+.3f}, {:+.3f}]", interval[0].get<double>(), interval[1].get<double>());
  return comparison["verdict"] == "not decided" ? text + " (not decided)" : text;
}

// The HKT model with the fewest bits per byte against each of its baselines.
std::string answer_of_language_models(const ordered_json& results) {
  const ordered_json* best = nullptr;
  for (const auto& model : results["models"]) {
    const auto& weights = model["level_weights"];
    const bool hkt = !weights.empty() && weights.front().size() > 1;
    if (hkt && (best == nullptr || model["mean"] < (*best)["mean"])) best = &model;
  }
  if (best == nullptr) return "";
  auto text = fmt::format("{}: {} ({}) has {:.3f} bits per byte on test", results["experiment"].get<std::string>(),
                          (*best)["name"].get<std::string>(), (*best)["what"].get<std::string>(),
                          (*best)["mean"].get<double>());
  if ((*best)["step_ratio"].is_number())
    text += fmt::format(", at {:.2f} times the step's time", (*best)["step_ratio"].get<double>());
  std::vector<std::string> differences;
  for (const auto& comparison : results["comparisons"]) {
    if (comparison["model"] == (*best)["name"]) differences.push_back(difference_text(comparison));
  }
  if (!differences.empty()) text += fmt::format(": {}", fmt::join(differences, ", "));
  return text + (results["seeds"].size() > 1 ? "." : ". One seed, so nothing is decided.");
}

// ---- classifiers

double score_of(const ordered_json& run) {
  if (!run["test"].is_null()) return 100 * run["test"]["accuracy"].get<double>();
  return run["best_validation"].is_null() ? 0 : 100 * run["best_validation"].get<double>();
}

double seconds_of(const ordered_json& run) {
  double sum = 0;
  for (const auto& epoch : run["epochs"]) sum += epoch.value("seconds", 0.0);
  return run["epochs"].empty() ? 0 : sum / static_cast<double>(run["epochs"].size());
}

std::string sentence_about(const ordered_json& run) {
  if (is_language(run)) return bits_sentence(run);
  const auto name = run["name"].get<std::string>();
  if (run["epochs"].empty()) {
    return run["test"].is_null() ? without_epochs(run)
                                 : fmt::format("{} reaches {:.2f} % on test.", name, score_of(run));
  }
  return fmt::format("{} reaches {:.2f} % on {}, in {:.1f} seconds per epoch.", name, score_of(run),
                     run["test"].is_null() ? "validation" : "test", seconds_of(run));
}

const ordered_json* model_of(const ordered_json& comparison, const std::string& name) {
  for (const auto& model : comparison["models"])
    if (model["name"] == name) return &model;
  return nullptr;
}

}  // namespace

std::vector<std::string> answers(const ordered_json& runs) {
  const ordered_json *standard = nullptr, *hierarchical = nullptr;
  bool alike = true;
  for (const auto& run : runs) {
    if (is_language(run)) {
      alike = false;
      break;
    }
    const bool one_level = run["config"]["model"]["levels"] == 1;
    const ordered_json*& best = one_level ? standard : hierarchical;
    if (best == nullptr || score_of(run) > score_of(*best)) best = &run;
    alike = alike && run["config"]["data"] == runs.front()["config"]["data"] && !run["epochs"].empty() &&
            run["test"].is_null() == runs.front()["test"].is_null();
  }
  if (standard == nullptr || hierarchical == nullptr || !alike) {
    std::vector<std::string> all;
    for (const auto& run : runs) all.push_back(sentence_about(run));
    return all;
  }
  const double ratio = seconds_of(*standard) > 0 ? seconds_of(*hierarchical) / seconds_of(*standard) : 0;
  const double gain = score_of(*hierarchical) - score_of(*standard);
  return {
      fmt::format("HKT ({}) reaches {:.2f} % on {}, standard attention ({}) {:.2f} %: {:.2f} points {}, at {:.2f} "
                  "times the time of "
                  "an epoch.",
                  (*hierarchical)["name"].get<std::string>(), score_of(*hierarchical),
                  (*hierarchical)["test"].is_null() ? "validation" : "test", (*standard)["name"].get<std::string>(),
                  score_of(*standard), std::abs(gain), gain >= 0 ? "more" : "less", ratio)};
}

std::string answer(const ordered_json& comparison) {
  if (are_of_language_models(comparison)) return answer_of_language_models(comparison);
  const auto* standard = model_of(comparison, "standard");
  const auto* hkt = model_of(comparison, "hkt");
  if (standard == nullptr || hkt == nullptr || standard != &comparison["models"].front()) return "";
  const auto mean = [](const ordered_json& model) { return model["mean"].get<double>(); };
  auto text = fmt::format("{}: HKT reaches {:.2f} %, standard attention {:.2f} % ({:+.2f})",
                          comparison["experiment"].get<std::string>(), mean(*hkt), mean(*standard),
                          mean(*hkt) - mean(*standard));
  if ((*hkt)["step_ratio"].is_number() && (*standard)["step_ratio"].is_number()) {
    text += fmt::format(", at {:.2f} times the step's time",
                        (*hkt)["step_ratio"].get<double>() / (*standard)["step_ratio"].get<double>());
  }
  const auto* strong = model_of(comparison, "strong");
  const auto* rotary = model_of(comparison, "hkt-rotary");
  if (strong != nullptr && rotary != nullptr) {
    text += fmt::format("; both with rotary positions and tuned: {:.2f} % and {:.2f} % ({:+.2f})", mean(*rotary),
                        mean(*strong), mean(*rotary) - mean(*strong));
  }
  return text + ".";
}

}  // namespace hkt::experiments
