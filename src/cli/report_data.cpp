// SPDX-License-Identifier: Apache-2.0
// Trims records and results, and adds what is computed from several seeds.
#include "report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "experiments/comparison.h"
#include "experiments/results.h"
#include "print.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

// Six digits are enough to look at.
void round_numbers(ordered_json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) value = std::strtod(fmt::format("{:.6g}", number).c_str(), nullptr);
  } else if (value.is_structured()) {
    for (auto& part : value) round_numbers(part);
  }
}

// A list by level, of which older files have "gaussianity" instead of "normality".
const ordered_json* tests_of(const ordered_json& part) {
  for (const char* key : {"normality", "gaussianity"}) {
    if (part.contains(key)) return &part[key];
  }
  return nullptr;
}

// Means by level over whatever heads have a number there; null where none has.
class LevelMeans {
 public:
  void add(std::size_t level, const ordered_json& value) {
    if (level >= sums_.size()) {
      sums_.resize(level + 1);
      counts_.resize(level + 1);
    }
    if (!value.is_number()) return;
    sums_[level] += value.get<double>();
    ++counts_[level];
  }

  ordered_json json() const {
    auto means = ordered_json::array();
    for (std::size_t level = 0; level < sums_.size(); ++level)
      means.push_back(counts_[level] > 0 ? ordered_json(sums_[level] / counts_[level]) : ordered_json());
    return means;
  }

 private:
  std::vector<double> sums_;
  std::vector<int> counts_;
};

// κ over its value for Gaussian scores; older files have the two.
ordered_json kurtosis_ratio(const ordered_json& test) {
  if (test.contains("kurtosis_ratio")) return test["kurtosis_ratio"];
  const auto observed = test.value("kurtosis", ordered_json()),
             expected = test.value("gaussian_kurtosis", ordered_json());
  if (!observed.is_number() || !expected.is_number() || expected.get<double>() <= 0) return {};
  return observed.get<double>() / expected.get<double>();
}

ordered_json shown_probe(const ordered_json& probe) {
  LevelMeans ratios, shares;
  for (const auto& block : probe.at("theory")) {
    for (const auto& head : block.at("heads")) {
      if (const auto* tests = tests_of(head)) {
        for (std::size_t level = 0; level < tests->size(); ++level) ratios.add(level, kurtosis_ratio((*tests)[level]));
      }
      const auto own = head.value("shares", ordered_json::array());
      for (std::size_t level = 0; level < own.size(); ++level) shares.add(level, own[level]);
    }
  }
  return {{"epoch", probe.at("epoch")}, {"kurtosis_ratio", ratios.json()}, {"shares", shares.json()}};
}

// Only these keys stay.
void keep(ordered_json& object, std::initializer_list<const char*> keys) {
  ordered_json kept = ordered_json::object();
  for (const char* key : keys) {
    if (object.contains(key)) kept[key] = std::move(object[key]);
  }
  object = std::move(kept);
}

// `quantiles`: one head's are drawn.
void trim_head(ordered_json& head, bool quantiles) {
  keep(head, {"head", "spectrum", "levels", "depth"});
  for (auto& level : head.at("levels")) {
    keep(level, {"level", "weight", "share", "directionality", "normality", "gaussianity"});
    for (const char* key : {"normality", "gaussianity"}) {
      if (!level.contains(key) || !level[key].is_object()) continue;
      level[key]["kurtosis_ratio"] = kurtosis_ratio(level[key]);
      if (!quantiles) level[key].erase("first_component");
      keep(level[key], {"kurtosis_ratio", "kurtosis_p", "skewness_p", "first_component"});
      quantiles = false;
    }
  }
}

void trim_theory(ordered_json& theory) {
  keep(theory, {"claims", "blocks"});
  bool first = true;
  for (auto& block : theory["blocks"]) {
    keep(block, {"block", "heads"});
    for (auto& head : block.at("heads")) {
      trim_head(head, first);
      first = false;
    }
  }
}

// A key of a section of the config, which may lack those that are at their default.
ordered_json setting(const ordered_json& record, const char* section, const char* key) {
  return record["config"].value(section, ordered_json::object()).value(key, ordered_json());
}

ordered_json curve_of(const ordered_json& record, const std::string& model, bool language) {
  ordered_json curve = {{"model", model}, {"seed", setting(record, "train", "seed")}};
  const char* measure = language ? "bits_per_byte" : "accuracy";
  double seconds = 0;
  for (const auto& epoch : record["epochs"]) {
    seconds += epoch.value("seconds", 0.0);
    curve["epochs"].push_back(epoch.value("epoch", 0.0) + 1);
    curve["seconds"].push_back(seconds);
    if (language) {
      curve["bytes"].push_back(epoch.value("step", 0.0) * setting(record, "train", "batch").get<double>() *
                               setting(record, "model", "max_length").get<double>());
    }
    curve["training"].push_back(epoch.value(std::string("train_") + measure, ordered_json()));
    curve["validation"].push_back(epoch.value(std::string("validation_") + measure, ordered_json()));
  }
  return curve;
}

ordered_json curves_of(const ordered_json& results) {
  constexpr std::size_t most_models = 12;  // more would be a tangle
  auto curves = ordered_json::array();
  if (results["models"].size() > most_models) return curves;
  const bool language = experiments::are_of_language_models(results);
  for (const auto& model : results["models"]) {
    const auto names = model["runs"].get<std::vector<std::string>>();
    for (const auto& record : results["runs"]) {
      if (record["epochs"].empty() ||
          std::find(names.begin(), names.end(), record["name"].get<std::string>()) == names.end())
        continue;
      curves.push_back(curve_of(record, model["name"], language));
    }
  }
  return curves;
}

// To results from before intervals were recorded.
void add_intervals(ordered_json& results) {
  const auto values_of = [&](const ordered_json& name) {
    for (const auto& model : results["models"])
      if (model["name"] == name) return model["test_accuracy"].get<std::vector<double>>();
    return std::vector<double>();
  };
  for (auto& comparison : results["comparisons"]) {
    if (comparison.contains("interval")) continue;
    const auto base = values_of(comparison["with"]), own = values_of(comparison["model"]);
    comparison["interval"] = nullptr;
    if (base.size() != own.size() || base.empty()) continue;
    if (const auto interval = experiments::paired_interval(base, own))
      comparison["interval"] = {interval->low, interval->high};
  }
}

// One part of a file that contains something unexpected is left out; the others are shown.
void or_without(ordered_json& whole, const char* key, const std::function<void()>& trim) {
  try {
    trim();
  } catch (const ordered_json::exception&) {
    warn(fmt::format("{} of {} contain something unexpected and are left out.", key,
                     whole.value(whole.contains("name") ? "name" : "experiment", std::string())));
    whole[key] = nullptr;
  }
}

}  // namespace

ordered_json shown_run(ordered_json record) {
  auto& epochs = record["epochs"];
  for (std::size_t i = 0; i + 1 < epochs.size(); ++i) epochs[i].erase("level_weights");
  if (record.contains("experiment") && epochs.size() > 1) epochs.erase(epochs.begin(), epochs.end() - 1);
  or_without(record, "probes", [&] {
    for (auto& probe : record["probes"]) probe = shown_probe(probe);
  });
  or_without(record, "theory", [&] {
    if (record["theory"].is_object()) trim_theory(record["theory"]);
  });
  for (const char* key : {"epochs", "probes", "theory"}) round_numbers(record[key]);
  return record;
}

void leave_out_spectra(ordered_json& runs, std::size_t most) {
  const auto examined =
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return run["theory"].is_object(); });
  if (static_cast<std::size_t>(examined) <= most) return;
  for (auto& run : runs) {
    if (!run["theory"].is_object()) continue;
    for (auto& block : run["theory"]["blocks"]) {
      for (auto& head : block["heads"]) {
        if (!head.contains("spectrum") || !head["spectrum"].is_array()) continue;
        for (auto& kernel : head["spectrum"]) keep(kernel, {"negative_energy"});
      }
    }
  }
}

ordered_json shown_results(ordered_json results) {
  or_without(results, "curves", [&] { results["curves"] = curves_of(results); });
  round_numbers(results["curves"]);
  if (!experiments::are_of_language_models(results)) add_intervals(results);
  for (const auto& record : results["runs"]) {
    if (record["test"].is_object() && record["test"].contains("sequences"))
      results["test_sequences"] = record["test"]["sequences"];
    results["classes"] = setting(record, "model", "classes");
  }
  results.erase("runs");
  return results;
}

}  // namespace hkt::cli
