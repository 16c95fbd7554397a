// hkt report: one HTML page about one run or several.
#include "report/report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "files/whole_file.h"
#include "hkt/config.h"
#include "hkt/safetensors.h"
#include "options.h"
#include "train/metrics.h"
#include "train/provenance.h"
#include "train/run_directory.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> folders;
  std::string out = "report.html";
};

// Test accuracies that Long Range Arena (Tay et al., 2021) published for its own setting of each task.
const std::map<std::string, std::vector<std::pair<std::string, double>>>& published() {
  static const std::map<std::string, std::vector<std::pair<std::string, double>>> all = {
      {"listops",
       {{"Transformer", 36.37}, {"Longformer", 35.63}, {"Performer", 18.01}, {"Linformer", 35.70}, {"BigBird", 36.05}}},
      {"imdb",
       {{"Transformer", 64.27}, {"Longformer", 62.85}, {"Performer", 65.40}, {"Linformer", 53.94}, {"BigBird", 64.02}}},
      {"scifar",
       {{"Transformer", 42.44},
        {"Longformer", 42.22},
        {"Performer", 42.77},
        {"Linformer", 38.56},
        {"BigBird", 40.83}}}};
  return all;
}

std::optional<ordered_json> read_json(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return {};
  auto parsed = ordered_json::parse(stream, nullptr, false);
  if (parsed.is_discarded()) {
    warn(path.string() + " is damaged, and left out.");
    return {};
  }
  return parsed;
}

std::string summary(const ordered_json& model) {
  const std::int64_t levels = model["levels"];
  std::string text = levels == 1 ? "standard attention"
                                 : fmt::format("HKT, {} levels, {} filter of {}", levels,
                                               model["filter"].get<std::string>(), model["kernel_size"].get<int>());
  text += fmt::format(", {} positions, {} blocks, width {}, {} heads", model["positions"].get<std::string>(),
                      model["blocks"].get<int>(), model["width"].get<int>(), model["heads"].get<int>());
  if (model["psd"] != "free") text += ", " + model["psd"].get<std::string>() + " kernel";
  if (model["mask"] != "none") text += ", causal mask";
  return text;
}

// The score on the test split, if `hkt eval` has taken it of the present model.
ordered_json test_score(const train::RunDirectory& run) {
  if (!fs::exists(run.predictions()) || !fs::exists(run.model())) return {};
  try {
    const auto file = load_safetensors(run.predictions());
    if (file.metadata.at("split") != "test" || file.metadata.at("model") != load_safetensors(run.model()).checksum)
      return {};
    at::Tensor logits, labels;
    for (const auto& [name, tensor] : file.tensors) (name == "logits" ? logits : labels) = tensor;
    const auto correct = logits.argmax(1).eq(labels).sum().item<std::int64_t>();
    return {
        {"correct", correct},
        {"sequences", labels.size(0)},
        {"accuracy", static_cast<double>(correct) / static_cast<double>(std::max<std::int64_t>(1, labels.size(0)))}};
  } catch (const std::exception& error) {
    warn(run.predictions().string() + " is left out: " + error.what());
    return {};
  }
}

ordered_json run_data(const fs::path& folder) {
  const auto run = train::open_run(folder);
  std::ifstream stream(run.config());
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto config = ordered_json::parse(Config::from_json(text).to_json());
  auto name = folder.filename().string();
  if (name.empty()) name = folder.parent_path().filename().string();
  ordered_json data = {{"name", name},
                       {"folder", folder.string()},
                       {"config", config},
                       {"summary", summary(config["model"])},
                       {"parameters", 0},
                       {"best_validation", nullptr},
                       {"epochs", ordered_json::array()},
                       {"probes", ordered_json::array()}};
  for (const auto& line : train::read_metrics(run.metrics())) {
    const auto event = line.value("event", "");
    if (event == "start") data["parameters"] = line.value("parameters", 0);
    if (event == "epoch") {
      auto epoch = ordered_json(line);
      epoch.erase("theory");
      const double accuracy = line.value("validation_accuracy", 0.0);
      if (data["best_validation"].is_null() || accuracy > data["best_validation"].get<double>())
        data["best_validation"] = accuracy;
      data["epochs"].push_back(std::move(epoch));
    }
    if (line.contains("theory"))
      data["probes"].push_back(
          {{"epoch", event == "start" ? 0 : line.value("epoch", 0) + 1}, {"theory", line["theory"]}});
  }
  data["test"] = test_score(run);
  const auto theory = read_json(run.theory());
  data["theory"] = theory ? *theory : ordered_json();
  return data;
}

// A run directory, or a folder of `hkt reproduce` with several of them.
void add_folder(const fs::path& folder, ordered_json& data) {
  if (const auto results = read_json(folder / "results.json")) {
    data["comparison"] = *results;
    std::vector<fs::path> inside;
    for (const auto& entry : fs::directory_iterator(folder))
      if (fs::exists(entry.path() / "config.json")) inside.push_back(entry.path());
    std::sort(inside.begin(), inside.end());
    for (const auto& path : inside) data["runs"].push_back(run_data(path));
    return;
  }
  data["runs"].push_back(run_data(folder));
}

double score_of(const ordered_json& run) {
  if (!run["test"].is_null()) return 100 * run["test"]["accuracy"].get<double>();
  return run["best_validation"].is_null() ? 0 : 100 * run["best_validation"].get<double>();
}

double seconds_of(const ordered_json& run) {
  double sum = 0;
  for (const auto& epoch : run["epochs"]) sum += epoch.value("seconds", 0.0);
  return run["epochs"].empty() ? 0 : sum / static_cast<double>(run["epochs"].size());
}

// Which model, how well, at what cost.
std::string answer(const ordered_json& data) {
  const ordered_json *standard = nullptr, *hierarchical = nullptr;
  for (const auto& run : data["runs"]) {
    const bool one_level = run["config"]["model"]["levels"] == 1;
    const ordered_json*& best = one_level ? standard : hierarchical;
    if (best == nullptr || score_of(run) > score_of(*best)) best = &run;
  }
  const auto said = [](const ordered_json& run) {
    return fmt::format("{:.2f} % on {}", score_of(run), run["test"].is_null() ? "validation" : "test");
  };
  if (standard == nullptr || hierarchical == nullptr) {
    const auto& run = standard != nullptr ? *standard : *hierarchical;
    if (run["epochs"].empty()) return run["name"].get<std::string>() + " has not finished an epoch yet.";
    return fmt::format("{} reaches {}, in {:.1f} seconds an epoch.", run["name"].get<std::string>(), said(run),
                       seconds_of(run));
  }
  double ratio = seconds_of(*standard) > 0 ? seconds_of(*hierarchical) / seconds_of(*standard) : 0;
  std::string of_what = "an epoch";
  if (data.contains("comparison"))
    for (const auto& model : data["comparison"]["models"])
      if (model["name"] == "hkt") ratio = model["step_ratio"], of_what = "a training step";
  const double gain = score_of(*hierarchical) - score_of(*standard);
  return fmt::format(
      "HKT ({}) reaches {}, standard attention ({}) {}: {:.2f} points {}, at {:.2f} times the time of {}.",
      (*hierarchical)["name"].get<std::string>(), said(*hierarchical), (*standard)["name"].get<std::string>(),
      said(*standard), std::abs(gain), gain >= 0 ? "more" : "less", ratio, of_what);
}

int run(const Options& options) {
  ordered_json data = {{"title", "Hierarchical Kernel Transformer"}, {"runs", ordered_json::array()}};
  for (const auto& folder : options.folders) add_folder(folder, data);
  if (data["runs"].empty()) throw std::invalid_argument(options.folders.front() + " holds no run.");
  data["answer"] = answer(data);
  const auto task = data["runs"][0]["config"]["data"]["task"].get<std::string>();
  if (const auto found = published().find(task); found != published().end())
    for (const auto& [name, value] : found->second) data["published"].push_back({{"name", name}, {"value", value}});
  data["where"] = train::provenance();
  write_file(options.out, report::page(data));
  fmt::print("{}\n{}\n", data["answer"].get<std::string>(), fs::absolute(options.out).string());
  return 0;
}

}  // namespace

void add_report(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("report", "Write one HTML page about trained models");
  command.add_option("folders", options->folders, "run directories, or folders of hkt reproduce")->required();
  command.add_option("--out", options->out, "the page")->capture_default_str();
  command.footer("The page needs no network.\n\nExample:\n  hkt report runs/standard runs/hkt --out report.html");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
