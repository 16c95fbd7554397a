// SPDX-License-Identifier: Apache-2.0
// Runs an experiment and collects its results.
#include "experiments/experiment.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <stdexcept>

#include "experiments/comparison.h"
#include "experiments/record.h"
#include "experiments/results.h"
#include "experiments/step_time.h"
#include "files/whole_file.h"
#include "train/config_json.h"
#include "train/provenance.h"

namespace hkt::experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// A model's runs, one per seed, and their results.
struct Row {
  ProtocolModel model;
  std::vector<Run> candidates;  // of the first seed
  std::vector<Run> runs;
  std::vector<double> accuracies;
  std::vector<at::Tensor> correct;  // per seed: which test sequences are classified correctly
};

// ---- the runs

Run make_run(const fs::path& folder, const std::string& name, const train::ConfigDraft& config, std::int64_t seed,
             const data::Dataset& dataset) {
  const auto own = config.with({fmt::format("train.seed={}", seed)}).with_absolute_paths();
  return {name, own.fitted_to(dataset.vocab, std::ssize(dataset.labels)), folder / name};
}

// The part of a run's name for these changes: "-learning_rate=1e-3" for "train.learning_rate=1e-3".
std::string name_of(const std::vector<std::string>& changes) {
  std::string name;
  for (const auto& change : changes) name += fmt::format("-{}", change.substr(change.find('.') + 1));
  return name;
}

void add_candidates(Row& row, const fs::path& folder, std::int64_t seed, const data::Dataset& dataset) {
  for (const auto& changes : row.model.candidates) {
    const auto name = fmt::format("{}-seed{}{}", row.model.name, seed, name_of(changes));
    row.candidates.push_back(make_run(folder, name, row.model.config.with(changes), seed, dataset));
    row.candidates.back().scores = false;
  }
}

// The candidate that is best on validation becomes the first seed's run, and the other seeds use its config. A candidate that
// diverged has no validation accuracy and ranks last.
void choose(Row& row) {
  if (row.candidates.empty()) return;
  const auto best = std::max_element(row.candidates.begin(), row.candidates.end(), [](const Run& a, const Run& b) {
    return a.best_validation() < b.best_validation();
  });
  row.runs.push_back(*best);
  row.runs.back().scores = true;
  const auto chosen = static_cast<std::size_t>(best - row.candidates.begin());
  row.model.config = row.model.config.with(row.model.candidates[chosen]);
}

void add_runs(Row& row, const fs::path& folder, const Protocol& protocol, const data::Dataset& dataset) {
  for (const auto seed : std::span(protocol.seeds).subspan(row.runs.size())) {
    row.runs.push_back(
        make_run(folder, fmt::format("{}-seed{}", row.model.name, seed), row.model.config, seed, dataset));
  }
  row.runs.front().examines = protocol.examined;
}

// Seed by seed, so that the models of one seed run at the same time.
std::vector<Run> runs_of(const std::vector<Row>& rows, std::size_t seeds) {
  std::vector<Run> all;
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    for (const auto& row : rows) {
      if (seed == 0) all.insert(all.end(), row.candidates.begin(), row.candidates.end());
      if (seed < row.runs.size()) all.push_back(row.runs[seed]);
    }
  }
  return all;
}

// First the candidates and the models without candidates, then the runs of the chosen configs.
bool train_all(RunPool& pool, std::vector<Row>& rows, const fs::path& folder, const Protocol& protocol,
               const data::Dataset& dataset) {
  for (auto& row : rows) {
    add_candidates(row, folder, protocol.seeds.front(), dataset);
    if (row.candidates.empty()) add_runs(row, folder, protocol, dataset);
  }
  if (!pool.run(runs_of(rows, protocol.seeds.size()))) return false;
  std::vector<Run> chosen;
  for (auto& row : rows) {
    if (row.candidates.empty()) continue;
    choose(row);
    add_runs(row, folder, protocol, dataset);
    chosen.insert(chosen.end(), row.runs.begin(), row.runs.end());
  }
  return chosen.empty() || pool.run(chosen);
}

void score(Row& row) {
  for (const auto& run : row.runs) {
    const auto stored = read_predictions(run.directory());
    row.correct.push_back(stored.logits.argmax(1).eq(stored.labels));
    row.accuracies.push_back(100 * row.correct.back().to(at::kDouble).mean().item<double>());
  }
}

// ---- the results

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

// The duration of training, including validation.
double training_seconds(const ordered_json& record) {
  double seconds = 0;
  for (const auto& epoch : record["epochs"])
    seconds += epoch.value("seconds", 0.0) + epoch.value("validation_seconds", 0.0);
  return seconds;
}

ordered_json compare(const Row& base, const Row& row) {
  ordered_json result = {{"model", row.model.name}, {"with", base.model.name}};
  const auto p = paired_t_test(base.accuracies, row.accuracies);
  result["gain"] = spread(row.accuracies).mean - spread(base.accuracies).mean;
  result["paired_t_test_p"] = p ? ordered_json(*p) : ordered_json();
  for (std::size_t seed = 0; seed < row.correct.size(); ++seed) {
    const auto only = [&](const Row& a, const Row& b) {
      return a.correct[seed].logical_and(b.correct[seed].logical_not()).sum().item<std::int64_t>();
    };
    result["mcnemar_p"].push_back(mcnemar(only(base, row), only(row, base)));
  }
  return result;
}

void set_times(ordered_json& model, const StepTime& time) {
  model["step_seconds"] = time.seconds;
  model["step_ratio"] = time.ratio;
  model["attention_seconds"] = time.attention_seconds;
  model["attention_ratio"] = time.attention_ratio;
}

std::vector<StepTime> times_of(const std::vector<Config>& configs, const data::Dataset& dataset, at::Device device) {
  constexpr int batches = 30;
  return step_times(configs, dataset.train, device, batches);
}

// `probes`: whether to keep the per-epoch theory metrics of the first seed.
void add_model(ordered_json& results, const Row& row, const StepTime& time, bool probes, const train::Warn& warn) {
  ordered_json model = {{"name", row.model.name},
                        {"what", row.model.what},
                        {"parameters", count_parameters(row.runs.front().config.model)},
                        {"learning_rate", row.runs.front().config.train.learning_rate},
                        {"test_accuracy", row.accuracies},
                        {"mean", spread(row.accuracies).mean},
                        {"deviation", spread(row.accuracies).deviation}};
  set_times(model, time);
  for (const auto& candidate : row.candidates) {
    const auto validation = candidate.diverged() ? ordered_json() : ordered_json(100 * candidate.best_validation());
    model["candidates"].push_back({{"run", candidate.name}, {"validation", validation}});
  }
  for (const auto& run : row.runs) {
    auto record = record_of(run.directory(), warn);
    for (const char* key : {"epochs", "probes", "theory"}) record[key] = rounded(record[key]);
    if (&run == &row.runs.front()) {
      model["training_seconds"] = training_seconds(record);
      model["level_weights"] = learned_weights(record);
    }
    if (!probes || &run != &row.runs.front()) record.erase("probes");
    model["runs"].push_back(run.name);
    results["runs"].push_back(std::move(record));
  }
  results["models"].push_back(std::move(model));
}

ordered_json results_of(const Protocol& protocol, const ExperimentOptions& options, const std::vector<Row>& rows,
                        const std::vector<StepTime>& times) {
  ordered_json results = {{"format", 1},
                          {"experiment", protocol.experiment},
                          {"budget", options.budget},
                          {"command", options.command},
                          {"seeds", protocol.seeds},
                          {"where", train::provenance()},
                          {"models", ordered_json::array()},
                          {"comparisons", ordered_json::array()},
                          {"runs", ordered_json::array()}};
  constexpr std::size_t few = 6;  // with more models the report shows only the table
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_model(results, rows[i], times[i], rows.size() <= few, options.warn);
    const auto& baselines = rows[i].model.baselines;
    for (const auto& base : rows) {
      if (std::find(baselines.begin(), baselines.end(), base.model.name) != baselines.end())
        results["comparisons"].push_back(compare(base, rows[i]));
    }
  }
  return results;
}

}  // namespace

std::optional<ordered_json> run_experiment(const Protocol& protocol, const ExperimentOptions& options) {
  const auto dataset = options.load(protocol.models.front().config.config().data);
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw std::invalid_argument(options.folder.string() + " cannot be created: " + error.message() + ".");

  const int cores = at::get_num_threads();
  const auto count = static_cast<int>(protocol.models.size() * protocol.seeds.size());
  constexpr int jobs_on_gpu = 4;
  const int jobs = options.jobs > 0 ? options.jobs : std::min(count, options.device.is_cuda() ? jobs_on_gpu : cores);
  RunPool pool(static_cast<std::size_t>(jobs), std::max(1, cores / jobs), options.device.str(), options.pool);
  std::vector<Row> rows;
  for (const auto& model : protocol.models) rows.push_back({model, {}, {}, {}, {}});
  if (!train_all(pool, rows, options.folder, protocol, dataset)) return {};

  std::vector<Config> configs;
  for (auto& row : rows) {
    score(row);
    configs.push_back(row.runs.front().config);
  }
  auto results = results_of(protocol, options, rows, times_of(configs, dataset, options.device));
  write_file(options.folder / "results.json", results_text(results));
  return results;
}

ordered_json take_times(const fs::path& path, at::Device device, const LoadData& load) {
  auto results = read_results(path);
  std::vector<Config> configs;
  for (const auto& model : results["models"]) {
    const auto& name = model["runs"].front();
    const auto run = std::find_if(results["runs"].begin(), results["runs"].end(),
                                  [&](const auto& record) { return record["name"] == name; });
    if (run == results["runs"].end()) {
      throw std::invalid_argument(
          fmt::format("{} refers to the run {}, which it does not contain.", path.string(), name.dump()));
    }
    configs.push_back(config_from((*run)["config"]));
  }
  const auto times = times_of(configs, load(configs.front().data), device);
  for (std::size_t i = 0; i < times.size(); ++i) set_times(results["models"][i], times[i]);
  results["timed"] = train::provenance();
  write_file(path, results_text(results));
  return results;
}

}  // namespace hkt::experiments
