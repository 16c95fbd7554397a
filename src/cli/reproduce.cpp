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

void print_comparisons(const ordered_json& results) {
  for (const auto& comparison : results["comparisons"]) {
    std::string line = fmt::format("{} against {}: {:+.2f}, ", comparison["model"].get<std::string>(),
                                   comparison["with"].get<std::string>(), comparison["gain"].get<double>());
    if (!comparison["paired_t_test_p"].is_null()) {
      line += fmt::format("paired t-test p = {:.2g}, ", comparison["paired_t_test_p"].get<double>());
    }
    line += "McNemar p =";
    for (const auto& p : comparison["mcnemar_p"]) line += fmt::format(" {:.2g}", p.get<double>());
    fmt::print("{}\n", line);
  }
}

void print_level_weights(const ordered_json& model) {
  const auto& blocks = model["level_weights"];
  for (std::size_t block = 0; block < blocks.size() && blocks[block].size() > 1; ++block) {
    std::string line = fmt::format("λ of {}, block {}:", model["name"].get<std::string>(), block);
    for (const auto& weight : blocks[block]) line += fmt::format(" {:.3f}", weight.get<double>());
    fmt::print("{}\n", line);
  }
}

void print_table(const ordered_json& results) {
  const auto& models = results["models"];
  const bool several = results["seeds"].size() > 1;
  std::size_t widest = results["experiment"].get<std::string>().size();
  for (const auto& model : models) widest = std::max(widest, model["name"].get<std::string>().size());
  fmt::print("\n{:{}} {:>10}  {:>15}  {:>7}  {:>9}  {:>6}  {:>9}\n", results["experiment"].get<std::string>(), widest,
             "parameters", "test accuracy", "gain", "step", "ratio", "attention");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto& model = models[i];
    const double mean = model["mean"];
    const auto accuracy = several ? fmt::format("{:.2f} ± {:.2f} %", mean, model["deviation"].get<double>())
                                  : fmt::format("{:.2f} %", mean);
    const std::size_t width = several ? 16 : 15;  // ± takes two bytes
    fmt::print("{:{}} {:>10}  {:>{}}  {:>7}  {:>6.1f} ms  {:>5.2f}×  {:>8.2f}×\n", model["name"].get<std::string>(),
               widest, model["parameters"].get<std::int64_t>(), accuracy, width,
               i == 0 ? "" : fmt::format("{:+.2f}", mean - models[0]["mean"].get<double>()),
               1e3 * model["step_seconds"].get<double>(), model["step_ratio"].get<double>(),
               model["attention_ratio"].get<double>());
  }
  print_comparisons(results);
  for (const auto& model : models) print_level_weights(model);
}

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
  std::erase_if(protocol.models, [&](const experiments::ProtocolModel& model) {
    return std::find(names.begin(), names.end(), model.name) == names.end();
  });
}

// ---- published results, checked

// Trains the run again and compares its test accuracy with those of the published seeds.
int check(const Options& options) {
  const auto results = experiments::read_results(options.check);
  if (options.run.empty())
    throw std::invalid_argument("--run is missing; it must be one of " +
                                fields::quoted_list(experiments::run_names(results)) + ".");
  const auto [model, record] = experiments::published_run(results, options.check, options.run);
  experiments::Run run{options.run, config_from(record["config"]),
                       fs::path(options.out) / ("check-" + results["experiment"].get<std::string>()) / options.run};
  run.config.train.device = DeviceKind::automatic;  // this machine's
  run.config.train.threads = 0;
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
  const auto test = experiments::record_of(run.directory(), warn)["test"];
  const double accuracy = 100 * test["accuracy"].get<double>();
  const std::vector<double> published = model["test_accuracy"];
  const double before = 100 * record["test"]["accuracy"].get<double>();
  fmt::print("{}: {:.2f} % now, {:.2f} % as published; {}\n", options.run, accuracy, before,
             test["predictions"] == record["test"]["predictions"] ? "the predictions are bit-identical"
                                                                  : "the predictions are not bit-identical");
  const auto interval = experiments::prediction_interval(published);
  if (!interval) {
    fmt::print("the results have only one seed, so there is no interval to compare with\n");
    return 0;
  }
  const bool within = accuracy >= interval->first && accuracy <= interval->second;
  fmt::print("{} the 95 % prediction interval of {:.2f} to {:.2f} % from {} published seeds\n",
             within ? "inside" : "outside", interval->first, interval->second, published.size());
  return within ? 0 : 1;
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
    for (const auto& experiment : experiments::experiments(budget)) names.push_back(experiment.name);
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
    print_table(experiments::take_times(options.times, device, load_data));
    return 0;
  }
  auto all = ordered_json::array();
  for (const auto& protocol :
       protocols_of(options, options.budget == "full" ? experiments::Budget::full : experiments::Budget::quick)) {
    const auto folder = fs::path(options.out) / (protocol.experiment + "-" + options.budget);
    const auto results = run_experiment(protocol, folder, options.budget, command_of(protocol.experiment, options),
                                        options.jobs, options.machine);
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
  for (const auto& [name, what] : experiments::experiments(experiments::Budget::full))
    text += fmt::format("  {:18} {}\n", name, what);
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
                  "quick: few epochs, one seed, only the paper's models; full: all seeds and baselines")
      ->capture_default_str();
  command.add_option("--set", options->changes, "change a key of every model's config: section.key=value")
      ->allow_extra_args(true);
  command.add_option("--only", options->only, "train only these of the experiment's models")->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for all runs")->capture_default_str();
  command.add_option("--jobs", options->jobs, "runs in parallel (default: one per core, four on a GPU)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--check", options->check, "a results file: train one of its runs again and compare");
  command.add_option("--run", options->run, "the run that --check trains again");
  command.add_option("--times", options->times,
                     "a results file: measure its step times on this machine and write them into it");
  command.add_flag("--json", options->print_json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(list_of_experiments() +
                 "\nFinished runs are not repeated; stopped ones are resumed.\n\n"
                 "Examples:\n  hkt reproduce listops --budget quick\n"
                 "  hkt reproduce --check results/listops-full.json --run hkt-seed0");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
