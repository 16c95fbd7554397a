// hkt reproduce: trains the models of the protocol, several at a time, and prints the table.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "commands.h"
#include "data/dataset.h"
#include "files/whole_file.h"
#include "hkt/safetensors.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "run_pool.h"
#include "train/comparison.h"
#include "train/metrics.h"
#include "train/presets.h"
#include "train/protocol.h"
#include "train/provenance.h"
#include "train/step_time.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

struct Options {
  std::string task, budget = "quick", out;
  std::vector<std::string> changes;
  int jobs = 0;
  bool print_json = false;
  MachineOptions machine;
};

// A model's runs, one per seed, and what came out.
struct Row {
  train::ProtocolModel model;
  std::vector<Run> runs;
  std::vector<double> accuracies;
  std::vector<at::Tensor> right;  // per seed: which test sequences were recognised
};

// ---- what the runs are

Run make_run(const fs::path& folder, const std::string& name, const train::ProtocolModel& model, std::int64_t seed,
             const data::Dataset& dataset, std::optional<double> learning_rate) {
  auto config = model.config;
  config["train"]["seed"] = seed;
  if (learning_rate) config["train"]["learning_rate"] = *learning_rate;
  return {name, train::fit_to_data(config, dataset.vocab, std::ssize(dataset.labels)), folder / name};
}

// Trains with each learning rate, and gives back the run that is best on validation; nothing when interrupted.
std::optional<Run> chosen_run(RunPool& pool, const fs::path& folder, const train::Protocol& protocol,
                              const train::ProtocolModel& model, const data::Dataset& dataset) {
  std::vector<Run> runs;
  for (const double rate : model.learning_rates) {
    const auto name = fmt::format("{}-seed{}-rate{:g}", model.name, protocol.seeds.front(), rate);
    runs.push_back(make_run(folder, name, model, protocol.seeds.front(), dataset, rate));
    runs.back().scores = false;
  }
  if (!pool.run(runs)) return {};
  const auto accuracy = [](const Run& run) {
    return train::read_metrics(run.directory().metrics()).back().value("best_validation_accuracy", 0.0);
  };
  auto best = *std::max_element(runs.begin(), runs.end(),
                                [&](const Run& a, const Run& b) { return accuracy(a) < accuracy(b); });
  best.scores = true;
  return best;
}

void score(Row& row) {
  for (const auto& run : row.runs) {
    const auto file = load_safetensors(run.directory().predictions());
    const std::map<std::string, at::Tensor> tensors(file.tensors.begin(), file.tensors.end());
    row.right.push_back(tensors.at("logits").argmax(1).eq(tensors.at("labels")));
    row.accuracies.push_back(100 * row.right.back().to(at::kDouble).mean().item<double>());
  }
}

// λ of the best epoch, by block and level, the mean over heads.
std::vector<std::vector<double>> learned_weights(const Run& run) {
  std::vector<std::vector<double>> result;
  for (const auto& line : train::read_metrics(run.directory().metrics())) {
    if (line.value("event", "") != "epoch" || !line.value("best", false)) continue;
    result.clear();
    for (const auto& block : line["level_weights"]) {
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

// What training took, validation included.
double training_seconds(const Run& run) {
  double seconds = 0;
  for (const auto& line : train::read_metrics(run.directory().metrics())) {
    seconds +=
        line.value("event", "") == "epoch" ? line.value("seconds", 0.0) + line.value("validation_seconds", 0.0) : 0;
  }
  return seconds;
}

// ---- what is printed

ordered_json compare(const Row& base, const Row& row) {
  ordered_json result = {{"model", row.model.name}, {"with", base.model.name}};
  const auto p = train::paired_t_test(base.accuracies, row.accuracies);
  result["gain"] = train::spread(row.accuracies).mean - train::spread(base.accuracies).mean;
  result["paired_t_test_p"] = p ? ordered_json(*p) : ordered_json();
  for (std::size_t seed = 0; seed < row.right.size(); ++seed) {
    const auto only = [&](const Row& a, const Row& b) {
      return a.right[seed].logical_and(b.right[seed].logical_not()).sum().item<std::int64_t>();
    };
    result["mcnemar_p"].push_back(train::mcnemar(only(base, row), only(row, base)));
  }
  return result;
}

ordered_json to_json(const train::Protocol& protocol, const std::string& budget, const std::vector<Row>& rows,
                     const std::vector<train::StepTime>& times) {
  ordered_json result = {
      {"task", protocol.task}, {"budget", budget}, {"seeds", protocol.seeds}, {"where", train::provenance()}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const auto [mean, deviation] = train::spread(row.accuracies);
    result["models"].push_back({{"name", row.model.name},
                                {"what", row.model.what},
                                {"parameters", train::count_parameters(row.runs.front().config.model)},
                                {"learning_rate", row.runs.front().config.train.learning_rate},
                                {"test_accuracy", row.accuracies},
                                {"mean", mean},
                                {"deviation", deviation},
                                {"training_seconds", training_seconds(row.runs.front())},
                                {"step_seconds", times[i].seconds},
                                {"step_ratio", times[i].ratio},
                                {"level_weights", learned_weights(row.runs.front())}});
    for (const auto& base : rows) {
      const auto& baselines = row.model.baselines;
      if (std::find(baselines.begin(), baselines.end(), base.model.name) != baselines.end()) {
        result["comparisons"].push_back(compare(base, row));
      }
    }
  }
  return result;
}

void print_table(const ordered_json& result) {
  const auto& models = result["models"];
  const bool several = result["seeds"].size() > 1;
  fmt::print("\n{:12} {:>10}  {:>15}  {:>7}  {:>9}  {:>6}\n", result["task"].get<std::string>(), "parameters",
             "test accuracy", "gain", "step", "ratio");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto& model = models[i];
    const double mean = model["mean"];
    const auto accuracy = several ? fmt::format("{:.2f} ± {:.2f} %", mean, model["deviation"].get<double>())
                                  : fmt::format("{:.2f} %", mean);
    const std::size_t width = several ? 16 : 15;  // ± takes two bytes
    fmt::print("{:12} {:>10}  {:>{}}  {:>7}  {:>6.1f} ms  {:>5.2f}×\n", model["name"].get<std::string>(),
               model["parameters"].get<std::int64_t>(), accuracy, width,
               i == 0 ? "" : fmt::format("{:+.2f}", mean - models[0]["mean"].get<double>()),
               1e3 * model["step_seconds"].get<double>(), model["step_ratio"].get<double>());
  }
  for (const auto& comparison : result.value("comparisons", ordered_json::array())) {
    std::string line =
        fmt::format("{} against {}: ", comparison["model"].get<std::string>(), comparison["with"].get<std::string>());
    if (!comparison["paired_t_test_p"].is_null()) {
      line += fmt::format("paired t-test p = {:.2g}, ", comparison["paired_t_test_p"].get<double>());
    }
    line += "McNemar p =";
    for (const auto& p : comparison["mcnemar_p"]) line += fmt::format(" {:.2g}", p.get<double>());
    fmt::print("{}\n", line);
  }
  for (const auto& model : models) {
    const auto& blocks = model["level_weights"];
    for (std::size_t block = 0; block < blocks.size() && blocks[block].size() > 1; ++block) {
      std::string line = fmt::format("λ of {}, block {}:", model["name"].get<std::string>(), block);
      for (const auto& weight : blocks[block]) line += fmt::format(" {:.3f}", weight.get<double>());
      fmt::print("{}\n", line);
    }
  }
}

// ---- the command

bool reproduce(const Options& options, const std::string& task, train::Budget budget, ordered_json& results) {
  const auto protocol = train::protocol(task, budget, options.changes);
  const fs::path folder = fs::path(options.out.empty() ? "runs" : options.out) / (task + "-" + options.budget);
  const auto device = chosen_device(options.machine);
  data::Dataset dataset;
  {
    Progress progress("data");
    dataset = data::load(Config::from_json(protocol.models.front().config.dump()).data,
                         [&](auto done, auto total, const auto& what) { progress.show(done, total, what); });
  }
  for (const auto& notice : dataset.notices) warn(notice);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::invalid_argument(folder.string() + " cannot be made: " + error.message() + ".");

  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const int cores = at::get_num_threads();
  const auto count = static_cast<int>(protocol.models.size() * protocol.seeds.size());
  constexpr int jobs_on_gpu = 4;
  const int jobs = options.jobs > 0 ? options.jobs : std::min(count, device.is_cuda() ? jobs_on_gpu : cores);
  RunPool pool(static_cast<std::size_t>(jobs), std::max(1, cores / jobs), device.str());
  std::vector<Row> rows;
  std::vector<Run> all;
  for (const auto& model : protocol.models) {
    rows.push_back({model, {}, {}, {}});
    auto& runs = rows.back().runs;
    std::optional<double> rate;
    if (!model.learning_rates.empty()) {
      const auto chosen = chosen_run(pool, folder, protocol, model, dataset);
      if (!chosen) return false;
      runs.push_back(*chosen);
      rate = chosen->config.train.learning_rate;
    }
    for (const auto seed : std::span(protocol.seeds).subspan(runs.size())) {
      runs.push_back(make_run(folder, fmt::format("{}-seed{}", model.name, seed), model, seed, dataset, rate));
    }
  }
  // Seed by seed, so that the models of one seed run side by side.
  for (std::size_t seed = 0; seed < protocol.seeds.size(); ++seed) {
    for (const auto& row : rows) all.push_back(row.runs[seed]);
  }
  if (!pool.run(all)) return false;

  std::vector<Config> configs;
  for (auto& row : rows) {
    score(row);
    configs.push_back(row.runs.front().config);
  }
  constexpr int timed_batches = 30;
  const auto result =
      to_json(protocol, options.budget, rows, train::step_times(configs, dataset.train, device, timed_batches));
  write_file(folder / "results.json", result.dump(2) + "\n");
  if (!options.print_json) {
    print_table(result);
    fmt::print("{}\n", (folder / "results.json").string());
  }
  results.push_back(result);
  return true;
}

int run(const Options& options) {
  if (options.budget != "quick" && options.budget != "full") {
    throw std::invalid_argument("--budget is \"" + options.budget + "\"; it must be quick or full.");
  }
  const auto budget = options.budget == "full" ? train::Budget::full : train::Budget::quick;
  const auto tasks = options.task == "all" ? train::protocol_tasks() : std::vector{options.task};
  const Interrupt interrupt;
  auto results = ordered_json::array();
  for (const auto& task : tasks) {
    if (reproduce(options, task, budget, results)) continue;
    fmt::print("stopped; the same command goes on from here\n");
    return interrupted;
  }
  if (options.print_json) fmt::print("{}\n", results.dump(2));
  return 0;
}

}  // namespace

void add_reproduce(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command =
      *program.add_subcommand("reproduce", "Train the models of an experiment side by side and compare them");
  command.add_option("task", options->task, "listops, scifar, imdb or all")->required();
  command.add_option("--budget", options->budget, "quick: standard and HKT, one seed; full: all models, three seeds")
      ->capture_default_str();
  command.add_option("--set", options->changes, "change a key of every model's config: section.key=value")
      ->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for all runs (default: runs)");
  command.add_option("--jobs", options->jobs, "runs at a time (default: one for each core, four on a GPU)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->print_json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      "Runs that are finished are not repeated; those that were stopped go on.\n\n"
      "Example:\n  hkt reproduce listops --budget quick");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
