// SPDX-License-Identifier: Apache-2.0
// The models, comparisons and records of an experiment as JSON.
#include "tabulate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "experiments/comparison.h"
#include "experiments/record.h"
#include "train/provenance.h"
#include "train/stored_score.h"

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

// What a model's runs reached on the test split, seed by seed.
struct Scores {
  std::vector<double> values;                 // accuracies in %, or bits per byte
  std::vector<at::Tensor> correct;            // classifiers: which test sequences are classified correctly
  std::vector<train::PositionLoss> position;  // language models: sums over the seeds
};

Scores scores_of(const Row& row) {
  Scores scores;
  for (const auto& run : row.runs) {
    if (!run.is_language()) {
      const auto stored = read_predictions(run.directory());
      scores.correct.push_back(stored.logits.argmax(1).eq(stored.labels));
      scores.values.push_back(100 * scores.correct.back().to(at::kDouble).mean().item<double>());
      continue;
    }
    const auto score = train::read_score(run.directory()).score;
    scores.values.push_back(score.tally.bits());
    if (scores.position.empty()) {
      scores.position = score.by_position;
      continue;
    }
    for (std::size_t i = 0; i < scores.position.size(); ++i) {
      scores.position[i].tally.loss += score.by_position.at(i).tally.loss;
      scores.position[i].tally.predictions += score.by_position.at(i).tally.predictions;
    }
  }
  return scores;
}

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

// ---- comparisons

ordered_json json_of(const std::optional<Interval>& interval) {
  return interval ? ordered_json{interval->low, interval->high} : ordered_json();
}

ordered_json compare_classifiers(const Scores& base, const Scores& own) {
  const auto p = paired_t_test(base.values, own.values);
  ordered_json result = {{"gain", spread(own.values).mean - spread(base.values).mean},
                         {"paired_t_test_p", p ? ordered_json(*p) : ordered_json()}};
  for (std::size_t seed = 0; seed < own.correct.size(); ++seed) {
    const auto only = [&](const Scores& a, const Scores& b) {
      return a.correct[seed].logical_and(b.correct[seed].logical_not()).sum().item<std::int64_t>();
    };
    result["mcnemar_p"].push_back(mcnemar(only(base, own), only(own, base)));
  }
  return result;
}

// Differences in bits per byte: below zero the model is better than its baseline.
ordered_json compare_language_models(const Scores& base, const Scores& own) {
  const auto interval = paired_interval(base.values, own.values);
  return {{"difference", spread(own.values).mean - spread(base.values).mean},
          {"interval", json_of(interval)},
          {"welch_interval", json_of(welch_interval(base.values, own.values))},
          {"verdict", verdict(own.values.size(), interval)}};
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
                      const std::vector<StepTime>& times) {
  const bool language = rows.front().runs.front().is_language();
  auto results = beginning_of(protocol, options, language);
  std::vector<Scores> scores;
  for (const auto& row : rows) scores.push_back(scores_of(row));
  constexpr std::size_t few = 6;  // with more models the report shows only the table
  const bool probes = rows.size() <= few && !language;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_model(results, rows[i], scores[i], times[i], probes, options.warn);
    const auto& baselines = rows[i].model.baselines;
    for (std::size_t base = 0; base < rows.size(); ++base) {
      const auto& name = rows[base].model.name;
      if (std::find(baselines.begin(), baselines.end(), name) == baselines.end()) continue;
      ordered_json comparison = {{"model", rows[i].model.name}, {"with", name}};
      comparison.update(language ? compare_language_models(scores[base], scores[i])
                                 : compare_classifiers(scores[base], scores[i]));
      results["comparisons"].push_back(std::move(comparison));
    }
  }
  return results;
}

}  // namespace hkt::experiments
