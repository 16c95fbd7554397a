// SPDX-License-Identifier: Apache-2.0
// hkt theory sweep-width: how close HKT's scores are to Gaussian, for widths from 32 to 512.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "experiment_view.h"
#include "interrupt.h"
#include "options.h"
#include "theory/claims.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string out = "runs";
  std::int64_t epochs = 0;
  std::vector<std::string> changes;
  int jobs = 0;
  MachineOptions machine;
};

// κ over its value for Gaussian scores, by level, the mean over blocks and heads; 0 for a level without enough samples.
std::vector<double> kurtosis_ratios(const ordered_json& probe) {
  std::vector<double> sums;
  std::vector<int> counts;
  for (const auto& block : probe["theory"]) {
    for (const auto& head : block["heads"]) {
      const auto& levels = head.contains("normality") ? head["normality"] : head["gaussianity"];
      sums.resize(levels.size());
      counts.resize(levels.size());
      for (std::size_t l = 0; l < levels.size(); ++l) {
        const auto ratio = theory::kurtosis_ratio(levels[l]);
        if (!ratio) continue;
        sums[l] += *ratio;
        ++counts[l];
      }
    }
  }
  for (std::size_t l = 0; l < sums.size(); ++l) sums[l] /= std::max(1, counts[l]);
  return sums;
}

void print_row(std::int64_t width, const char* when, const ordered_json& probe) {
  std::string line = fmt::format("{:6}  {:15}", width, when);
  for (const double ratio : kurtosis_ratios(probe)) line += ratio > 0 ? fmt::format("  {:8.3f}", ratio) : "         –";
  fmt::print("{}\n", line);
}

int run(const Options& options) {
  auto changes = options.changes;
  if (options.epochs > 0) changes.push_back("train.epochs=" + std::to_string(options.epochs));
  const auto protocol = experiments::protocol("listops-width", experiments::Budget::full, changes);
  const auto folder = std::filesystem::path(options.out) / "listops-width-full";
  const Interrupt interrupt;
  const auto results =
      run_experiment(protocol, folder, "full", "hkt theory sweep-width", options.jobs, options.machine);
  if (!results) {
    fmt::print("stopped; run the same command again to resume\n");
    return interrupted;
  }
  fmt::print(
      "\nMardia's kurtosis of the scores over its Gaussian value, by level (0 is the finest), mean over blocks and "
      "heads\n");
  fmt::print("{:>6}  {:15}  by level\n", "width", "");
  for (const auto& record : (*results)["runs"]) {
    const std::int64_t width = record["config"]["model"]["width"];
    const auto& probes = record["probes"];
    if (probes.empty()) continue;
    print_row(width, "before training", probes.front());
    print_row(width, "trained", probes.back());
  }
  fmt::print("{}\n", (folder / "results.json").string());
  return 0;
}

}  // namespace

void add_sweep_width(CLI::App& theory, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *theory.add_subcommand(
      "sweep-width", "Train HKT of widths 32 to 512 on ListOps and measure how Gaussian its scores are");
  command.add_option("--epochs", options->epochs, "epochs of each run (default: 30)")->check(CLI::Range(1, 100000));
  command.add_option("--set", options->changes, "change a key of every model's config: section.key=value")
      ->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for all runs")->capture_default_str();
  command.add_option("--jobs", options->jobs, "runs in parallel (default: one per core, four on a GPU)")
      ->check(CLI::Range(1, 1024));
  add_machine_options(command, options->machine);
  command.footer(
      "The same runs as hkt reproduce listops-width --budget full. Finished runs are not repeated.\n\n"
      "Example:\n  hkt theory sweep-width --epochs 8");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
