// SPDX-License-Identifier: Apache-2.0
// hkt reproduce: trains the models of an experiment, several at a time, and prints the table. --check repeats one run of
// published results and compares; --times measures the step times of published results again.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "experiment_table.h"
#include "experiment_view.h"
#include "experiments/comparison.h"
#include "experiments/record.h"
#include "experiments/results.h"
#include "files/json_fields.h"
#include "interrupt.h"
#include "options.h"
#include "print.h"
#include "train/config_json.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Options {
  std::string experiment, budget = "quick", out = "runs", check, run, times;
  std::vector<std::string> changes, only;
  int jobs = 0;
  bool print_json = false;
  MachineOptions machine;
};

// Keeps the models with these names; all if none are given.
void keep_only(experiments::Protocol& protocol, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<std::string> known;
  for (const auto& model : protocol.models) known.push_back(model.name);
  for (const auto& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw std::invalid_argument(protocol.experiment + " has no model \"" + name + "\"; it has " +
                                fields::quoted_list(known) + " (nearest: \"" + fields::nearest(name, known) + "\").");
  }
  const auto is_kept = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::erase_if(protocol.models, [&](const experiments::ProtocolModel& model) { return !is_kept(model.name); });
  for (const auto& model : protocol.models) {
    if (model.chosen_as.empty() || is_kept(model.chosen_as)) continue;
    throw std::invalid_argument(model.name + " takes the learning rate that is chosen for " + model.chosen_as +
                                "; --only must name that model, too.");
  }
}

// ---- published results, checked

// The run with its published config, on this machine.
experiments::Run run_of(const Options& options, const ordered_json& results, const ordered_json& record) {
  const auto published = train::ConfigDraft(config_from(record["config"]));
  experiments::Run run{options.run, published.with_absolute_paths().config(),
                       fs::path(options.out) / ("check-" + results["experiment"].get<std::string>()) / options.run};
  run.config.train.device = DeviceKind::automatic;
  run.config.train.threads = 0;
  return run;
}

// Prints how the score lies to those of the published seeds; the exit code.
int compare_with_published(const Options& options, const ordered_json& test,
                           const experiments::PublishedRun& published) {
  const bool language = test.contains("bits_per_byte");
  const auto score = [&](const ordered_json& from) {
    return language ? from["bits_per_byte"].get<double>() : 100 * from["accuracy"].get<double>();
  };
  const auto text = [&](double value) {
    return language ? fmt::format("{:.4f} bits per byte", value) : fmt::format("{:.2f} %", value);
  };
  const auto& before = published.record["test"];
  fmt::print("{}: {} now, {} as published; {}\n", options.run, text(score(test)), text(score(before)),
             test["predictions"] == before["predictions"] ? "the predictions are bit-identical"
                                                          : "the predictions are not bit-identical");
  const std::vector<double> seeds = published.model[language ? "test_bits_per_byte" : "test_accuracy"];
  const auto interval = experiments::prediction_interval(seeds);
  if (!interval) {
    fmt::print("the results have only one seed, so there is no interval to compare with\n");
    return 0;
  }
  const bool within = interval->contains(score(test));
  fmt::print("{} the 95 % prediction interval of {:.{}f} to {} from {} published seeds\n",
             within ? "inside" : "outside", interval->low, language ? 4 : 2, text(interval->high), seeds.size());
  return within ? 0 : 1;
}

// Trains the run again and compares its score on test with those of the published seeds.
int check(const Options& options) {
  const auto results = experiments::read_results(options.check);
  if (options.run.empty())
    throw std::invalid_argument("--run is missing; it must be one of " +
                                fields::quoted_list(experiments::run_names(results)) + ".");
  const auto published = experiments::published_run(results, options.check, options.run);
  if (published.record["test"].is_null())
    throw std::invalid_argument(options.check + " has no score of " + options.run + " on test to compare with.");
  const auto run = run_of(options, results, published.record);
  std::error_code error;
  fs::create_directories(run.folder.parent_path(), error);
  if (error) throw std::invalid_argument(options.out + " cannot be used: " + error.message() + ".");
  if (run.next() == experiments::Run::Stage::done) fs::remove_all(run.folder, error);  // of an earlier check
  LiveLines lines;
  experiments::RunPool pool(1, options.machine.threads.value_or(at::get_num_threads()),
                            chosen_device(options.machine).str(), pool_hooks(lines));
  if (!pool.run({run})) {
    fmt::print("stopped; run the same command again to resume\n");
    return interrupted;
  }
  return compare_with_published(options, experiments::record_of(run.directory(), warn)["test"], published);
}

// ---- the command

// The command with the options that affect the results.
std::string command_of(const std::string& experiment, const Options& options) {
  std::string text = "hkt reproduce " + experiment + " --budget " + options.budget;
  if (!options.only.empty()) text += fmt::format(" --only {}", fmt::join(options.only, " "));
  if (!options.changes.empty()) text += fmt::format(" --set {}", fmt::join(options.changes, " "));
  return text;
}

void check_options(const Options& options) {
  for (const auto& [name, results] : {std::pair("--check", options.check), std::pair("--times", options.times)}) {
    if (results.empty()) continue;
    if (!options.experiment.empty() || !options.changes.empty() || !options.only.empty() || options.print_json) {
      throw std::invalid_argument(
          std::string(name) + " uses the experiment of the results; it takes no experiment, --set, --only or --json.");
    }
  }
  if (!options.check.empty() && !options.times.empty())
    throw std::invalid_argument("--check and --times cannot be combined.");
  if (!options.run.empty() && options.check.empty()) throw std::invalid_argument("--run needs --check.");
  if (!options.check.empty() || !options.times.empty()) return;
  if (options.experiment.empty())
    throw std::invalid_argument("the experiment is missing; hkt reproduce --help lists them.");
  if (options.budget != "quick" && options.budget != "full") {
    throw std::invalid_argument("--budget is \"" + options.budget + "\"; it must be quick or full.");
  }
  if (options.experiment == "all" && !options.only.empty()) {
    throw std::invalid_argument("--only needs a single experiment, not all.");
  }
}

// All protocols are made before the first is run, so that errors appear at once.
std::vector<experiments::Protocol> protocols_of(const Options& options, experiments::Budget budget) {
  std::vector<std::string> names = {options.experiment};
  if (options.experiment == "all") {
    names.clear();
    for (const auto& experiment : experiments::experiments_of_all(budget)) names.push_back(experiment.name);
  }
  std::vector<experiments::Protocol> protocols;
  for (const auto& name : names) {
    protocols.push_back(experiments::protocol(name, budget, options.changes));
    keep_only(protocols.back(), options.only);
  }
  return protocols;
}

int run(const Options& options) {
  check_options(options);
  const Interrupt interrupt;
  if (!options.check.empty()) return check(options);
  if (!options.times.empty()) {
    const auto device = chosen_device(options.machine);
    if (options.machine.threads) at::set_num_threads(*options.machine.threads);
    print_table(experiments::take_times(options.times, device, load_task));
    return 0;
  }
  auto all = ordered_json::array();
  for (const auto& protocol :
       protocols_of(options, options.budget == "full" ? experiments::Budget::full : experiments::Budget::quick)) {
    const auto folder = fs::path(options.out) / (protocol.experiment + "-" + options.budget);
    const auto results = run_experiment(protocol, folder, options.budget, command_of(protocol.experiment, options),
                                        options.jobs, options.machine, options.experiment == "all");
    if (!results) {
      fmt::print("stopped; run the same command again to resume\n");
      return interrupted;
    }
    if (!options.print_json) {
      print_table(*results);
      fmt::print("{}\n", (folder / "results.json").string());
    }
    all.push_back(*results);
  }
  if (options.print_json) fmt::print("{}\n", fields::dump(all, 2));
  return 0;
}

std::string list_of_experiments() {
  std::string text = "Experiments:\n";
  for (const auto& [name, what] : experiments::experiments()) text += fmt::format("  {:18} {}\n", name, what);
  return text;
}

}  // namespace

void add_reproduce(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command =
      *program.add_subcommand("reproduce", "Train the models of an experiment side by side and compare them");
  command.add_option("experiment", options->experiment, "one of the experiments below, or all");
  command
      .add_option("--budget", options->budget,
                  "quick: few epochs, one seed, only some models; full: all seeds and baselines")
      ->capture_default_str();
  command.add_option("--set", options->changes, "change a key of every model's config: section.key=value")
      ->allow_extra_args(true);
  command.add_option("--only", options->only, "train only these of the experiment's models")->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for all runs")->capture_default_str();
  command
      .add_option("--jobs", options->jobs,
                  "runs in parallel (default: one per core, four on a GPU; language models: one)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--check", options->check, "a results file: train one of its runs again and compare");
  command.add_option("--run", options->run, "the run that --check trains again");
  command.add_option("--times", options->times,
                     "a results file: measure its step times on this machine and write them into it");
  command.add_flag("--json", options->print_json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      list_of_experiments() +
      "\nFinished runs are not repeated; stopped ones are resumed. With all, nor are finished experiments.\n\n"
      "Examples:\n  hkt reproduce listops --budget quick\n"
      "  hkt reproduce lm --budget quick --set data.train=FOLDER \"data.pattern=*.py\"\n"
      "  hkt reproduce --check results/listops-full.json --run hkt-seed0");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
