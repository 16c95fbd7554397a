// SPDX-License-Identifier: Apache-2.0
// hkt tune: trains a grid of settings, several runs at a time, and chooses on validation.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "commands.h"
#include "data_view.h"
#include "experiment_view.h"
#include "experiments/sweep.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "interrupt.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "report_page.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using experiments::Trial;
using nlohmann::ordered_json;

struct Options {
  std::string preset, out = "runs/tune", init;
  std::vector<std::string> grid, changes;
  int jobs = 0;
  bool json = false;
  MachineOptions machine;
};

std::string score_text(const Trial& trial) {
  const auto best = trial.run.best_validation();
  if (!best) return "diverged";
  return trial.run.is_language() ? fmt::format("{:.4f} bits per byte", *best) : fmt::format("{:.2f} %", 100 * *best);
}

ordered_json results_of(const std::vector<Trial>& trials) {
  ordered_json results = {{"chosen", trials.front().run.name}, {"runs", ordered_json::array()}};
  for (const auto& trial : trials) {
    const auto best = trial.run.best_validation();
    results["runs"].push_back({{"name", trial.run.name},
                               {"folder", trial.run.folder.string()},
                               {"changes", trial.changes},
                               {"best_validation", best ? ordered_json(*best) : nullptr}});
  }
  return results;
}

void print_table(const std::vector<Trial>& trials) {
  std::size_t width = 0;
  for (const auto& trial : trials) width = std::max(width, trial.run.name.size());
  fmt::print("{:{}}  best on validation\n", "", width);
  for (const auto& trial : trials) fmt::print("{:{}}  {}\n", printable(trial.run.name), width, score_text(trial));
  fmt::print("chosen: {}\n", printable(trials.front().run.folder.string()));
}

// The best runs; a page about hundreds would not open.
std::string write_page(const std::vector<Trial>& trials, const fs::path& folder) {
  constexpr std::size_t most = 12;
  std::vector<std::string> paths;
  for (const auto& trial : trials) {
    if (paths.size() < most && trial.run.best_validation()) paths.push_back(trial.run.folder.string());
  }
  auto page = (folder / "report.html").string();
  write_report(paths, page);
  return page;
}

// Where a linear model of the text does better, the user should know.
void compare_with_linear(const experiments::TaskData& data, const Trial& best) {
  const auto* dataset = std::get_if<data::Dataset>(&data);
  const auto task = best.run.config.data.task;
  if (dataset == nullptr || (task != Task::text && task != Task::imdb)) return;
  const auto reached = best.run.best_validation();
  if (reached) warn_of_linear_score(train::linear_baseline(*dataset, best.run.config.model.max_length), *reached);
}

int run(const Options& options) {
  if (options.preset.empty()) throw std::invalid_argument("a preset or a config file is required.");
  const auto axes = experiments::axes_of(options.grid);
  const Interrupt interrupt;
  const auto preset = train::ConfigDraft(options.preset);
  const auto base = options.init.empty()
                        ? preset.with(options.changes)
                        : preset.started_from(options.init, model_of_run(options.init), options.changes);
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const auto data = load_task(base.config().data);
  auto trials = experiments::trials_of(axes, base, data, options.out);
  {
    LiveLines lines;
    if (!run_sweep(trials, {options.jobs, device, pool_hooks(lines)})) {
      fmt::print("stopped; run the same command again to resume\n");
      return interrupted;
    }
  }
  const auto& best = trials.front();
  if (!best.run.best_validation()) throw std::runtime_error("every run diverged; try lower learning rates.");
  const auto results = results_of(trials);
  write_file(fs::path(options.out) / "tune.json", fields::dump(results, 2) + "\n");
  const auto page = write_page(trials, options.out);
  compare_with_linear(data, best);
  if (options.json) {
    fmt::print("{}\n", fields::dump(results, 2));
  } else {
    print_table(trials);
    fmt::print("{}\n", printable(page));
  }
  return 0;
}

}  // namespace

void add_tune(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("tune", "Train a grid of settings and choose on validation");
  command.add_option("preset", options->preset, "a preset or a config file in JSON");
  command
      .add_option("--grid", options->grid,
                  "the values to try of a key: section.key=value,value; of several keys, all combinations")
      ->allow_extra_args(true);
  command.add_option("--set", options->changes, "change a key of every run: section.key=value; hkt config lists them")
      ->allow_extra_args(true);
  command.add_option("--init", options->init, "start every run from the weights of this one, as in hkt train");
  command.add_option("--out", options->out, "the folder for all runs")->capture_default_str();
  command
      .add_option("--jobs", options->jobs,
                  "runs in parallel (default: one per core, four on a GPU; language models: one)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      "Finished runs are not repeated; stopped ones are resumed. The test split is not used: hkt eval scores the\n"
      "chosen run on it. Writes tune.json and report.html into the folder.\n\n"
      "Example:\n  hkt tune text --grid train.learning_rate=1e-4,5e-4 model.levels=1,3 --set data.train=reviews.csv "
      "--out runs/tune");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
