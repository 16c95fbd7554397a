// SPDX-License-Identifier: Apache-2.0
// hkt eval: loss and accuracy of a trained model on a split of its data.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "data/batches.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "progress.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder, split = "test";
  bool json = false;
  MachineOptions machine;
};

// The number of sequences of each label, and the accuracy on them.
nlohmann::ordered_json by_label(const train::Predictions& predictions, const std::vector<std::string>& labels) {
  auto rows = nlohmann::ordered_json::array();
  const auto right = predictions.logits.argmax(1).eq(predictions.labels);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto of_label = predictions.labels.eq(static_cast<std::int64_t>(i));
    const auto count = of_label.sum().item<std::int64_t>();
    const auto correct = of_label.logical_and(right).sum().item<std::int64_t>();
    rows.push_back({{"label", labels[i]},
                    {"sequences", count},
                    {"accuracy", count > 0 ? static_cast<double>(correct) / static_cast<double>(count) : 0.0}});
  }
  return rows;
}

void save_predictions(const train::RunDirectory& run, const train::Predictions& predictions, const std::string& split,
                      const std::string& model) {
  save_safetensors(run.predictions(), {{"logits", predictions.logits}, {"labels", predictions.labels}},
                   {{"split", split}, {"model", model}});
}

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  auto [directory, trained, dataset] = load_run(options.folder, device);
  const auto& config = trained.identity.config;
  train::Predictions predictions;
  const auto& split = split_of(dataset, options.split);
  if (const auto cut = data::count_cut(split, config.model.max_length); cut > 0) {
    warn(fmt::format("{} of {} sequences are longer than model.max_length, {}, and are cut there.", cut, split.size(),
                     config.model.max_length));
  }
  {
    Progress progress(options.split);
    predictions = train::evaluate(trained.model, split, config, device,
                                  [&](auto done, auto total) { progress.show(done, total); });
  }
  save_predictions(directory, predictions, options.split, trained.checksum);
  const auto rows = by_label(predictions, trained.identity.labels);
  if (options.json) {
    const nlohmann::ordered_json result = {{"split", options.split},
                                           {"sequences", predictions.tally.sequences},
                                           {"correct", predictions.tally.correct},
                                           {"accuracy", predictions.tally.accuracy()},
                                           {"loss", predictions.tally.mean_loss()},
                                           {"labels", rows}};
    fmt::print("{}\n", fields::dump(result, 2));
    return 0;
  }
  fmt::print("{} accuracy {:.2f} % ({} of {}), loss {:.4f}\n", options.split, 100 * predictions.tally.accuracy(),
             predictions.tally.correct, predictions.tally.sequences, predictions.tally.mean_loss());
  for (const auto& row : rows) {
    fmt::print("  {:16} {:6.2f} % of {}\n", printable(row["label"].get<std::string>()),
               100 * row["accuracy"].get<double>(), row["sequences"].get<std::int64_t>());
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("eval", "Score a trained model on a split of its data");
  command.add_option("folder", options->folder, "a run directory")->required();
  command.add_option("--split", options->split, "train, validation or test")->capture_default_str();
  command.add_flag("--json", options->json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      "Writes predictions.safetensors into the run directory.\n\nExample:\n  hkt eval runs/hkt --split test");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
