// SPDX-License-Identifier: Apache-2.0
// Comparing the models of an experiment.
#include "compared.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

// Of each sequence, in how many more of the seeds the second model is right, as a share: from -1 to 1.
std::vector<double> differences_by_sequence(const Scores& base, const Scores& own) {
  const auto share = [](const Scores& scores) { return at::stack(scores.correct).to(at::kDouble).mean(0); };
  const auto all = (share(own) - share(base)).contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

ordered_json compare_classifiers(const Scores& base, const Scores& own) {
  const auto p = paired_t_test(base.values, own.values);
  const auto [low, high] = resampled_interval(differences_by_sequence(base, own));
  ordered_json result = {{"gain", spread(own.values).mean - spread(base.values).mean},
                         {"paired_t_test_p", p ? ordered_json(*p) : ordered_json()},
                         {"interval", json_of(paired_interval(base.values, own.values))},
                         {"welch_interval", json_of(welch_interval(base.values, own.values))},
                         {"sequences_interval", {100 * low, 100 * high}}};
  for (std::size_t seed = 0; seed < own.correct.size(); ++seed) {
    const auto only = [&](const Scores& a, const Scores& b) {
      return a.correct[seed].logical_and(b.correct[seed].logical_not()).sum().item<std::int64_t>();
    };
    result["mcnemar_p"].push_back(mcnemar(only(base, own), only(own, base)));
  }
  return result;
}

ordered_json compare_language_models(const Scores& base, const Scores& own) {
  const auto interval = paired_interval(base.values, own.values);
  return {{"difference", spread(own.values).mean - spread(base.values).mean},
          {"interval", json_of(interval)},
          {"welch_interval", json_of(welch_interval(base.values, own.values))},
          {"verdict", verdict(own.values.size(), interval)}};
}

using Compare = std::function<ordered_json(const Scores& base, const Scores& own)>;

ordered_json compared(const std::vector<Row>& rows, const std::vector<Scores>& scores, const Compare& compare) {
  auto comparisons = ordered_json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& baselines = rows[i].model.baselines;
    for (std::size_t base = 0; base < rows.size(); ++base) {
      const auto& name = rows[base].model.name;
      if (std::find(baselines.begin(), baselines.end(), name) == baselines.end()) continue;
      ordered_json comparison = {{"model", rows[i].model.name}, {"with", name}};
      comparison.update(compare(scores[base], scores[i]));
      comparisons.push_back(std::move(comparison));
    }
  }
  return comparisons;
}

}  // namespace

ordered_json json_of(const std::optional<Interval>& interval) {
  return interval ? ordered_json{interval->low, interval->high} : ordered_json();
}

ordered_json compared_classifiers(const std::vector<Row>& rows, const std::vector<Scores>& scores) {
  auto comparisons = compared(rows, scores, compare_classifiers);
  std::vector<std::optional<double>> values;
  for (const auto& comparison : comparisons) {
    const auto& p = comparison["paired_t_test_p"];
    values.push_back(p.is_null() ? std::nullopt : std::optional(p.get<double>()));
  }
  const auto corrected = holm(values);
  for (std::size_t i = 0; i < corrected.size(); ++i) {
    auto& comparison = comparisons[i];
    const auto& p = corrected[i];
    comparison["holm_p"] = p ? ordered_json(*p) : ordered_json();
    const bool decided = p && *p < 1 - usual_confidence;
    const std::string direction = comparison["gain"].get<double>() < 0 ? "lower" : "higher";
    comparison["verdict"] = scores.front().values.size() < 2 ? "one seed" : decided ? direction : "not decided";
  }
  return comparisons;
}

ordered_json compared_language_models(const std::vector<Row>& rows, const std::vector<Scores>& scores) {
  return compared(rows, scores, compare_language_models);
}

}  // namespace hkt::experiments
