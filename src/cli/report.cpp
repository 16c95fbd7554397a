// SPDX-License-Identifier: Apache-2.0
// hkt report: one HTML page about one run or several.
#include "report/report.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "classifier_view.h"
#include "commands.h"
#include "experiments/answers.h"
#include "experiments/published.h"
#include "experiments/record.h"
#include "experiments/results.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "options.h"
#include "print.h"
#include "report_data.h"
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

// The experiment's model that a run belongs to, if the run is its first seed's.
const ordered_json* model_shown_by(const ordered_json& results, const ordered_json& name) {
  for (const auto& model : results["models"])
    if (model["runs"].front() == name) return &model;
  return nullptr;
}

// Adds an experiment's table and, unless it has many models, the first seed's run of each. `folder`: where its runs are, if they
// are there: they may have been examined since.
void add_results(ordered_json results, const fs::path& folder, ordered_json& data) {
  const std::size_t most_shown = experiments::are_of_language_models(results) ? 12 : 6;
  for (auto& record : results["runs"]) {
    const auto* model = model_shown_by(results, record["name"]);
    if (model == nullptr || results["models"].size() > most_shown) continue;
    auto added = record;
    for (const char* key : {"experiment", "budget"}) added[key] = results[key];
    added["of"] = (*model)["name"];
    if (added["theory"].is_null() && !folder.empty()) {
      const auto name = record["name"].get<std::string>();
      if (auto theory = experiments::read_theory({folder / name})) {
        added["theory"] = std::move(*theory);
        added["theory"]["model"]["run"] = name;
      }
    }
    data["runs"].push_back(shown_run(std::move(added)));
  }
  data["comparisons"].push_back(shown_results(std::move(results)));
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
  const auto run = train::open_run(path);
  auto record = shown_run(experiments::record_of(run, warn));
  record["folder"] = path.string();
  if (auto score = read_score(run, warn)) record["score"] = std::move(*score);
  data["runs"].push_back(std::move(record));
}

// Where several paths are given, as by results/*.json, those that hold neither a run nor an experiment are left out; one that does
// not exist was mistyped.
void add_paths(const std::vector<std::string>& paths, ordered_json& data) {
  std::vector<std::string> skipped;
  for (const auto& path : paths) {
    try {
      add_path(path, data);
    } catch (const std::invalid_argument& error) {
      if (paths.size() == 1 || !fs::exists(path)) throw;
      skipped.emplace_back(error.what());
    }
  }
  if (data["runs"].empty() && data["comparisons"].empty())
    throw std::invalid_argument(skipped.empty() ? paths.front() + " contains no run." : skipped.front());
  for (const auto& why : skipped) warn(why + " It is left out.");
}

}  // namespace

std::vector<std::string> write_report(const std::vector<std::string>& paths, const std::string& file) {
  ordered_json data = {{"title", "Hierarchical Kernel Transformer"}, {"runs", ordered_json::array()}};
  data["comparisons"] = ordered_json::array();
  add_paths(paths, data);
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
  constexpr std::size_t most_spectra = 4;
  leave_out_spectra(data["runs"], most_spectra);
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
