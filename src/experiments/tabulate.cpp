// SPDX-License-Identifier: Apache-2.0
// The models, comparisons and records of an experiment as JSON.
#include "tabulate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdlib>

#include "by_expression.h"
#include "compared.h"
#include "experiments/comparison.h"
#include "experiments/record.h"
#include "hkt/safetensors.h"
#include "linear_rows.h"
#include "scores.h"
#include "train/phases.h"
#include "train/provenance.h"
#include "train/stored_score.h"

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

// Six digits are more than these numbers are accurate to.
ordered_json rounded(const ordered_json& value) {
  if (value.is_number_float()) return std::strtod(fmt::format("{:.6g}", value.get<double>()).c_str(), nullptr);
  auto result = value;
  if (value.is_structured()) {
    for (auto& item : result) item = rounded(item);
  }
  return result;
}

// The level weights λ of the best epoch, by block and level, averaged over heads.
std::vector<std::vector<double>> learned_weights(const ordered_json& record) {
  std::vector<std::vector<double>> result;
  for (const auto& epoch : record["epochs"]) {
    if (!epoch.value("best", false)) continue;
    result.clear();
    for (const auto& block : epoch.at("level_weights")) {
      std::vector<double> mean(block.at(0).size(), 0);
      for (const auto& head : block) {
        for (std::size_t l = 0; l < mean.size(); ++l)
          mean[l] += head[l].get<double>() / static_cast<double>(block.size());
      }
      result.push_back(mean);
    }
  }
  return result;
}

// The mean over heads of the effective shares in a block of theory.json.
std::vector<double> effective_shares_of(const ordered_json& block) {
  const auto& heads = block.at("heads");
  std::vector<double> mean(heads.at(0).at("levels").size(), 0);
  for (const auto& head : heads) {
    for (std::size_t l = 0; l < mean.size(); ++l)
      mean[l] += head.at("levels").at(l).at("share").get<double>() / static_cast<double>(heads.size());
  }
  return mean;
}

// The same of all blocks; empty if `hkt theory` has not run, or the file has none.
std::vector<std::vector<double>> effective_shares(const ordered_json& theory) {
  std::vector<std::vector<double>> result;
  if (!theory.is_object()) return result;
  try {
    for (const auto& block : theory.at("blocks")) result.push_back(effective_shares_of(block));
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return result;
}

// The duration of training, including validation.
double training_seconds(const ordered_json& record) {
  double seconds = 0;
  for (const auto& epoch : record["epochs"])
    seconds += epoch.value("seconds", 0.0) + epoch.value("validation_seconds", 0.0);
  return seconds;
}

// The tokens that a language model has seen by the end of training.
std::int64_t trained_tokens(const Config& config, const ordered_json& record) {
  const auto steps = record["epochs"].empty() ? 0 : record["epochs"].back().value("step", std::int64_t{0});
  return steps * config.train.batch * config.model.max_length;
}

// ---- models

ordered_json candidates_of(const Row& row) {
  auto candidates = ordered_json::array();
  for (const auto& candidate : row.candidates) {
    const auto best = candidate.best_validation();
    const double scale = candidate.is_language() ? 1 : 100;
    candidates.push_back(
        {{"run", candidate.name}, {"validation", best ? ordered_json(scale * *best) : ordered_json()}});
  }
  return candidates;
}

ordered_json model_of(const Row& row, const Scores& scores) {
  const auto& config = row.runs.front().config;
  const bool language = row.runs.front().is_language();
  return {{"name", row.model.name},
          {"what", row.model.what},
          {"parameters", count_parameters(config.model)},
          {"learning_rate", config.train.learning_rate},
          {language ? "test_bits_per_byte" : "test_accuracy", scores.values},
          {"mean", spread(scores.values).mean},
          {"deviation", spread(scores.values).deviation}};
}

// The mean over seeds of what leaving out first tokens does, and the accuracy of the mean over phases, seed by seed.
ordered_json phases_of(const Row& row, const Scores& scores) {
  if (row.runs.front().phases == 1) return {};
  std::vector<double> means, accuracies, changed;
  for (const auto& run : row.runs) {
    const auto found = train::read_phases(run.directory(), load_safetensors(run.directory().model()).checksum);
    if (!found) return {};
    means.push_back(100 * found->at("mean_accuracy").get<double>());
    const auto& starts = found->at("starts");
    accuracies.resize(starts.size());
    changed.resize(starts.size());
    for (std::size_t i = 0; i < starts.size(); ++i) {
      accuracies[i] += 100 * starts[i]["accuracy"].get<double>() / static_cast<double>(row.runs.size());
      changed[i] += 100 * starts[i]["changed"].get<double>() / static_cast<double>(row.runs.size());
    }
  }
  const auto interval = paired_interval(scores.values, means);
  return {{"phases", row.runs.front().phases}, {"accuracy_without_first", accuracies},
          {"changed_without_first", changed},  {"mean_test_accuracy", means},
          {"mean", spread(means).mean},        {"gain", spread(means).mean - spread(scores.values).mean},
          {"interval", json_of(interval)},     {"verdict", verdict(means.size(), interval)}};
}

// The paths of the data as the command gave them, so that results do not say where on a machine they were made.
void keep_given_paths(ordered_json& record, const DataConfig& given) {
  for (const auto& [key, path] : {std::pair("train", &given.train), {"test", &given.test}, {"source", &given.source}}) {
    auto& data = record["config"]["data"];
    if (data.contains(key)) data[key] = *path;
  }
}

// Drops what only single models are drawn from: all eigenvalues, and the samples of a component.
void drop_lists(ordered_json& theory) {
  if (theory.is_object()) {
    theory.erase("eigenvalues");
    theory.erase("first_component");
  }
  for (auto& item : theory) {
    if (item.is_structured()) drop_lists(item);
  }
}

// `probes`: whether to keep the per-epoch theory metrics of the first seed.
ordered_json record_for(const Row& row, const Run& run, bool probes, const train::Warn& warn) {
  auto record = record_of(run.directory(), warn);
  for (const char* key : {"epochs", "probes", "theory"}) record[key] = rounded(record[key]);
  const bool first = &run == &row.runs.front();
  if (!probes || !first) record.erase("probes");
  if (!first && record["theory"].is_object()) drop_lists(record["theory"]);
  keep_given_paths(record, row.model.config.config().data);
  return record;
}

void add_model(ordered_json& results, const Row& row, const Scores& scores, const StepTime& time, bool probes,
               const train::Warn& warn) {
  auto model = model_of(row, scores);
  set_times(model, time);
  if (!row.candidates.empty()) model["candidates"] = candidates_of(row);
  if (auto phases = phases_of(row, scores); !phases.is_null()) model["phases"] = std::move(phases);
  for (const auto& run : row.runs) {
    auto record = record_for(row, run, probes, warn);
    if (&run == &row.runs.front()) {
      model["training_seconds"] = training_seconds(record);
      if (run.is_language()) {
        model["tokens"] = trained_tokens(run.config, record);
        model["by_position"] = rounded(train::by_position_json({{}, scores.position, {}}));
      }
      model["level_weights"] = learned_weights(record);
      if (const auto shares = effective_shares(record["theory"]); !shares.empty()) model["level_shares"] = shares;
    }
    model["runs"].push_back(run.name);
    results["runs"].push_back(std::move(record));
  }
  results["models"].push_back(std::move(model));
}

ordered_json beginning_of(const Protocol& protocol, const ExperimentOptions& options, bool language) {
  ordered_json results = {{"format", 1}, {"experiment", protocol.experiment}};
  if (language) results["kind"] = "language";
  results.update({{"budget", options.budget},
                  {"command", options.command},
                  {"seeds", protocol.seeds},
                  {"where", train::provenance()},
                  {"models", ordered_json::array()},
                  {"comparisons", ordered_json::array()},
                  {"runs", ordered_json::array()}});
  return results;
}

}  // namespace

void set_times(ordered_json& model, const StepTime& time) {
  model["step_seconds"] = time.seconds;
  model["step_ratio"] = time.ratio;
  model["attention_seconds"] = time.attention_seconds;
  model["attention_ratio"] = time.attention_ratio;
}

ordered_json tabulate(const Protocol& protocol, const ExperimentOptions& options, const std::vector<Row>& rows,
                      const std::vector<StepTime>& times, const TaskData& data) {
  const bool language = rows.front().runs.front().is_language();
  auto results = beginning_of(protocol, options, language);
  std::vector<Scores> scores;
  for (const auto& row : rows) scores.push_back(scores_of(row));
  constexpr std::size_t few = 6;  // with more models the report shows only the table
  const bool probes = rows.size() <= few && !language;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_model(results, rows[i], scores[i], times[i], probes, options.warn);
    if (const auto* dataset = std::get_if<data::Dataset>(&data)) {
      add_by_expression(results["models"].back(), rows[i].runs.front().config.data, dataset->test, scores[i].correct);
    }
  }
  results["comparisons"] = language ? compared_language_models(rows, scores) : compared_classifiers(rows, scores);
  if (protocol.linear) {
    const auto longest = rows.front().runs.front().config.model.max_length;
    results["linear"] = linear_rows(std::get<data::Dataset>(data), longest, protocol.seeds);
  }
  return results;
}

}  // namespace hkt::experiments
