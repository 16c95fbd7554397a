// SPDX-License-Identifier: Apache-2.0
// Runs an experiment: candidates, choices, seeds.
#include "experiments/experiment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "experiments/results.h"
#include "experiments/sample.h"
#include "files/whole_file.h"
#include "tabulate.h"
#include "train/config_json.h"
#include "train/provenance.h"

namespace hkt::experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

Run make_run(const fs::path& folder, const std::string& name, const train::ConfigDraft& config, std::int64_t seed,
             const TaskData& data) {
  const auto own = config.with({fmt::format("train.seed={}", seed)}).with_absolute_paths();
  return {name, fitted(own, data), folder / name};
}

// The part of a run's name for these changes: "-learning_rate=1e-3" for "train.learning_rate=1e-3".
std::string name_of(const std::vector<std::string>& changes) {
  std::string name;
  for (const auto& change : changes) name += fmt::format("-{}", change.substr(change.find('.') + 1));
  return name;
}

void add_candidates(Row& row, const fs::path& folder, std::int64_t seed, const TaskData& data) {
  for (const auto& changes : row.model.candidates) {
    const auto name = fmt::format("{}-seed{}{}", row.model.name, seed, name_of(changes));
    row.candidates.push_back(make_run(folder, name, row.model.config.with(changes), seed, data));
    row.candidates.back().scores = false;
  }
}

// The candidate that is best on validation becomes the first seed's run, and the other seeds use its config.
void choose(Row& row) {
  if (row.candidates.empty()) return;
  const auto best = std::max_element(row.candidates.begin(), row.candidates.end(), is_worse);
  row.runs.push_back(*best);
  row.runs.back().scores = true;
  const auto chosen = static_cast<std::size_t>(best - row.candidates.begin());
  row.chosen = row.model.candidates[chosen];
  row.model.config = row.model.config.with(row.chosen);
}

void add_runs(Row& row, const fs::path& folder, const Protocol& protocol, const TaskData& data) {
  for (const auto seed : std::span(protocol.seeds).subspan(row.runs.size())) {
    row.runs.push_back(make_run(folder, fmt::format("{}-seed{}", row.model.name, seed), row.model.config, seed, data));
  }
  for (auto& run : row.runs) {
    run.examines = protocol.examined && run.config.model.attention == AttentionKind::hkt;
    run.phases = protocol.phases;
  }
  if (const auto* streams = std::get_if<data::Streams>(&data)) row.runs.front().prompt = prompt_of(streams->test);
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

// Takes over what was chosen for another model.
void choose_as(Row& row, const std::vector<Row>& rows) {
  if (row.model.chosen_as.empty()) return;
  const auto other =
      std::find_if(rows.begin(), rows.end(), [&](const Row& one) { return one.model.name == row.model.chosen_as; });
  row.model.config = row.model.config.with(other->chosen);
}

// First the candidates and the models without candidates, then the runs of the chosen configs.
bool train_all(RunPool& pool, std::vector<Row>& rows, const fs::path& folder, const Protocol& protocol,
               const TaskData& data) {
  const auto waits = [](const Row& row) { return !row.model.candidates.empty() || !row.model.chosen_as.empty(); };
  for (auto& row : rows) {
    add_candidates(row, folder, protocol.seeds.front(), data);
    if (!waits(row)) add_runs(row, folder, protocol, data);
  }
  if (!pool.run(runs_of(rows, protocol.seeds.size()))) return false;
  for (auto& row : rows) choose(row);
  std::vector<Run> chosen;
  for (auto& row : rows) {
    if (!waits(row)) continue;
    choose_as(row, rows);
    add_runs(row, folder, protocol, data);
    chosen.insert(chosen.end(), row.runs.begin(), row.runs.end());
  }
  return chosen.empty() || pool.run(chosen);
}

// Language models run one at a time, so that the seconds of one can be compared with those of another.
int jobs_for(const ExperimentOptions& options, const Protocol& protocol, const TaskData& data) {
  if (options.jobs > 0) return options.jobs;
  if (std::holds_alternative<data::Streams>(data)) return 1;
  constexpr int jobs_on_gpu = 4;
  const auto count = static_cast<int>(protocol.models.size() * protocol.seeds.size());
  return std::min(count, options.device.is_cuda() ? jobs_on_gpu : at::get_num_threads());
}

// What this experiment, by this command, has left there when it was complete.
std::optional<ordered_json> finished(const ExperimentOptions& options) {
  const auto path = options.folder / "results.json";
  std::error_code error;
  if (!options.keeps_finished || !fs::exists(path, error)) return {};
  auto results = read_results(path);
  if (results["budget"] != options.budget || results.value("command", "") != options.command) return {};
  return results;
}

}  // namespace

std::optional<ordered_json> run_experiment(const Protocol& protocol, const ExperimentOptions& options) {
  if (auto results = finished(options)) return results;
  const auto data = options.load(protocol.models.front().config.config().data);
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw std::invalid_argument(options.folder.string() + " cannot be created: " + error.message() + ".");

  const int jobs = jobs_for(options, protocol, data);
  RunPool pool(static_cast<std::size_t>(jobs), std::max(1, at::get_num_threads() / jobs), options.device.str(),
               options.pool);
  std::vector<Row> rows;
  for (const auto& model : protocol.models) rows.push_back({model, {}, {}, {}});
  if (!train_all(pool, rows, options.folder, protocol, data)) return {};

  std::vector<Config> configs;
  for (const auto& row : rows) configs.push_back(row.runs.front().config);
  auto results = tabulate(protocol, options, rows, step_times(configs, data, options.device), data);
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
  const auto times = step_times(configs, load(configs.front().data), device);
  for (std::size_t i = 0; i < times.size(); ++i) set_times(results["models"][i], times[i]);
  results["timed"] = train::provenance();
  write_file(path, results_text(results));
  return results;
}

}  // namespace hkt::experiments
