// SPDX-License-Identifier: Apache-2.0
// Reading and writing results.json.
#include "experiments/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "files/json_fields.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "train/config_json.h"

namespace hkt::experiments {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Names of experiments, models and runs are used as folder names.
void check_name(const fs::path& path, const std::string& name) {
  if (is_plain_name(name)) return;
  throw std::invalid_argument(
      path.string() + " has the name " + quote(name) +
      "; names of experiments, models and runs are used as folder names, and this one cannot be.");
}

// The checks below throw ordered_json::exception if a value is missing or has another type.

void require(bool holds) {
  if (!holds) throw ordered_json::other_error::create(0, "", nullptr);
}

void check_number_or_null(const ordered_json& value) { require(value.is_null() || value.is_number()); }

void check_integer(const ordered_json& value) { require(fields::is_integer(value, INT64_MIN, INT64_MAX)); }

void check_positions(const ordered_json& ranges) {
  require(ranges.is_array());
  for (const auto& range : ranges) {
    check_integer(range.at("begin"));
    check_integer(range.at("end"));
    range.at("bits_per_byte").get<double>();
  }
}

void check_interval(const ordered_json& interval) {
  require(interval.is_null() || interval.get<std::vector<double>>().size() == 2);
}

void check_linear(const ordered_json& row) {
  row.at("name").get<std::string>();
  row.at("what").get<std::string>();
  require(!row.at("test_accuracy").get<std::vector<double>>().empty());
  for (const char* key : {"mean", "deviation"}) row.at(key).get<double>();
}

void check_phases(const ordered_json& phases) {
  for (const char* key : {"accuracy_without_first", "changed_without_first", "mean_test_accuracy"})
    require(!phases.at(key).get<std::vector<double>>().empty());
  check_integer(phases.at("phases"));
  for (const char* key : {"mean", "gain"}) phases.at(key).get<double>();
  check_interval(phases.at("interval"));
  phases.at("verdict").get<std::string>();
}

void check_groups(const ordered_json& groups) {
  require(groups.is_array());
  for (const auto& group : groups) {
    for (const char* key : {"from", "to", "sequences"}) check_integer(group.at(key));
    group.at("accuracy").get<double>();
  }
}

void check_model(const fs::path& path, const ordered_json& model, bool language) {
  check_name(path, model.at("name"));
  model.at("what").get<std::string>();
  check_integer(model.at("parameters"));
  require(!model.at(language ? "test_bits_per_byte" : "test_accuracy").get<std::vector<double>>().empty());
  model.at("mean").get<double>();
  model.at("deviation").get<double>();
  require(!model.at("runs").get<std::vector<std::string>>().empty());
  for (const char* key : {"step_seconds", "step_ratio"}) check_number_or_null(model.at(key));  // null before --times
  const auto weights = model.at("level_weights").get<std::vector<std::vector<double>>>();
  if (model.contains("level_shares"))
    require(model["level_shares"].get<std::vector<std::vector<double>>>().size() == weights.size());
  if (model.contains("attention_ratio")) model["attention_ratio"].get<double>();
  if (model.contains("phases")) check_phases(model["phases"]);
  for (const char* key : {"by_depth", "by_length"}) {
    if (model.contains(key)) check_groups(model[key]);
  }
  if (!language) return;
  check_integer(model.at("tokens"));
  model.at("training_seconds").get<double>();
  check_positions(model.at("by_position"));
}

void check_run(const fs::path& path, const ordered_json& run, bool language) {
  check_name(path, run.at("name"));
  const auto config = config_from(run.at("config"));
  require((config.model.kind == ModelKind::language) == language);
  run.at("summary").get<std::string>();
  check_integer(run.at("parameters"));
  check_number_or_null(run.at("best_validation"));
  require(run.at("epochs").is_array() && (run.at("theory").is_null() || run["theory"].is_object()));
  for (const auto& epoch : run["epochs"]) {
    epoch.at("seconds").get<double>();
    epoch.at(language ? "validation_bits_per_byte" : "validation_accuracy").get<double>();
    if (language) check_integer(epoch.at("step"));
  }
  if (run.contains("sample")) {
    for (const char* key : {"prompt", "text"}) run["sample"].at(key).get<std::string>();
  }
  if (run.at("test").is_null()) return;
  run["test"].at(language ? "bits_per_byte" : "accuracy").get<double>();
  run["test"].at("predictions").get<std::string>();
}

void check_comparison(const ordered_json& comparison, bool language) {
  comparison.at("model").get<std::string>();
  comparison.at("with").get<std::string>();
  if (language) {
    comparison.at("difference").get<double>();
    for (const char* key : {"interval", "welch_interval"}) check_interval(comparison.at(key));
    comparison.at("verdict").get<std::string>();
    return;
  }
  comparison.at("gain").get<double>();
  check_number_or_null(comparison.at("paired_t_test_p"));
  comparison.at("mcnemar_p").get<std::vector<double>>();
  if (!comparison.contains("verdict")) return;  // as earlier versions wrote it
  for (const char* key : {"interval", "welch_interval", "sequences_interval"}) check_interval(comparison.at(key));
  check_number_or_null(comparison.at("holm_p"));
  comparison["verdict"].get<std::string>();
}

void check_results(const fs::path& path, const ordered_json& results) {
  require(results.is_object() && results.value("format", ordered_json()) == 1);
  for (const char* key : {"models", "runs", "comparisons"}) require(results.at(key).is_array());
  require(!results["models"].empty() && !results["runs"].empty());
  results.at("where").at("date");
  check_name(path, results.at("experiment"));
  results.at("budget").get<std::string>();
  require(results.at("seeds").is_array());
  for (const auto& seed : results["seeds"]) check_integer(seed);
  const bool language = are_of_language_models(results);
  require(language || !results.contains("kind"));
  for (const auto& model : results["models"]) check_model(path, model, language);
  for (const auto& run : results["runs"]) check_run(path, run, language);
  for (const auto& comparison : results["comparisons"]) check_comparison(comparison, language);
  for (const auto& row : results.value("linear", ordered_json::array())) check_linear(row);
}

}  // namespace

ordered_json read_results(const fs::path& path) {
  ordered_json results;
  try {
    results = ordered_json::parse(read_file(path), nullptr, false);
    check_results(path, results);
  } catch (const ordered_json::exception&) {
    throw std::invalid_argument(path.string() + " contains no results of hkt reproduce.");
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
  return results;
}

bool are_of_language_models(const ordered_json& results) { return results.value("kind", ordered_json()) == "language"; }

std::string results_text(const ordered_json& results) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : results.items()) {
    std::string text = fields::dump(value);
    if (value.is_array() && !value.empty() && value.front().is_object()) {
      std::vector<std::string> items;
      for (const auto& item : value) items.push_back(fields::dump(item));
      text = fmt::format("[\n  {}\n]", fmt::join(items, ",\n  "));
    }
    lines.push_back(fmt::format("{}: {}", fields::dump(ordered_json(key)), text));
  }
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

std::vector<std::string> run_names(const ordered_json& results) {
  std::vector<std::string> names;
  for (const auto& record : results["runs"]) names.push_back(record["name"]);
  return names;
}

PublishedRun published_run(const ordered_json& results, const std::string& path, const std::string& name) {
  const auto names = run_names(results);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw std::invalid_argument(path + " has no run \"" + name + "\"; it has " + fields::quoted_list(names) +
                                " (nearest: \"" + fields::nearest(name, names) + "\").");
  for (const auto& model : results["models"]) {
    const auto& runs = model["runs"];
    if (std::find(runs.begin(), runs.end(), name) != runs.end())
      return {model, results["runs"][static_cast<std::size_t>(found - names.begin())]};
  }
  throw std::invalid_argument(path + " has a run \"" + name + "\" that belongs to no model.");
}

}  // namespace hkt::experiments
