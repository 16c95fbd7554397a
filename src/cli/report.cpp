// SPDX-License-Identifier: Apache-2.0
// hkt report: one HTML page about one run or several.
#include "report/report.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "experiments/answers.h"
#include "experiments/published.h"
#include "experiments/record.h"
#include "experiments/results.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "options.h"
#include "print.h"
#include "report_page.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> paths;
  std::string out = "report.html";
};

// Adds an experiment's table and, unless it has many models, the first seed's run of each. `folder`: where its runs are, if they
// are there: they may have been examined since.
void add_results(ordered_json results, const fs::path& folder, ordered_json& data) {
  const std::size_t most_shown = experiments::are_of_language_models(results) ? 12 : 6;
  const auto& models = results["models"];
  for (const auto& record : results["runs"]) {
    const bool first = std::any_of(models.begin(), models.end(),
                                   [&](const auto& model) { return model["runs"].front() == record["name"]; });
    if (!first || models.size() > most_shown) continue;
    data["runs"].push_back(record);
    auto& added = data["runs"].back();
    added["experiment"] = results["experiment"];
    if (!added["theory"].is_null() || folder.empty()) continue;
    const auto name = record["name"].get<std::string>();
    if (auto theory = experiments::read_theory({folder / name})) {
      added["theory"] = std::move(*theory);
      added["theory"]["model"]["run"] = name;
    }
  }
  results.erase("runs");
  data["comparisons"].push_back(std::move(results));
}

void add_folder(const fs::path& folder, ordered_json& data) {
  add_results(experiments::read_results(folder / "results.json"), folder, data);
}

// The experiments in a folder given to `hkt reproduce --out`, sorted by name.
std::vector<fs::path> experiments_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "results.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A run directory, an experiment's folder or results, or a folder of experiments.
void add_path(const fs::path& path, ordered_json& data) {
  if (fs::is_regular_file(path)) return add_results(experiments::read_results(path), {}, data);
  if (fs::exists(path / "results.json")) return add_folder(path, data);
  const auto inside = fs::exists(path / "config.json") ? std::vector<fs::path>() : experiments_in(path);
  for (const auto& folder : inside) add_folder(folder, data);
  if (!inside.empty()) return;
  data["runs"].push_back(experiments::record_of(train::open_run(path), warn));
  data["runs"].back()["folder"] = path.string();
}

}  // namespace

std::vector<std::string> write_report(const std::vector<std::string>& paths, const std::string& file) {
  ordered_json data = {{"title", "Hierarchical Kernel Transformer"}, {"runs", ordered_json::array()}};
  data["comparisons"] = ordered_json::array();
  for (const auto& path : paths) add_path(path, data);
  if (data["runs"].empty() && data["comparisons"].empty())
    throw std::invalid_argument(paths.front() + " contains no run.");
  for (const auto& comparison : data["comparisons"]) {
    if (const auto text = experiments::answer(comparison); !text.empty()) data["answers"].push_back(text);
  }
  auto single = ordered_json::array();
  for (const auto& run : data["runs"]) {
    if (!run.contains("experiment")) single.push_back(run);
  }
  if (!single.empty()) {
    for (const auto& text : experiments::answers(single)) data["answers"].push_back(text);
  }
  data["published"] = experiments::published();
  data["where"] = train::provenance();
  write_file(file, report::page(data));
  return data.value("answers", ordered_json::array());
}

namespace {

int run(const Options& options) {
  for (const auto& text : write_report(options.paths, options.out)) fmt::print("{}\n", printable(text));
  fmt::print("{}\n", printable(fs::absolute(options.out).string()));
  return 0;
}

}  // namespace

void add_report(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("report", "Write one HTML page about trained models");
  command
      .add_option("paths", options->paths, "run directories, or folders or results.json files written by hkt reproduce")
      ->required();
  add_page_option(command, options->out);
  command.footer("The page needs no network.\n\nExample:\n  hkt report runs/standard runs/hkt --out report.html");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
