// SPDX-License-Identifier: Apache-2.0
// hkt eval: loss and accuracy of a classifier, or bits per byte of a language model, on a split of its data.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "data/batches.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "progress.h"
#include "train/stored_score.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder, split = "test";
  std::int64_t tokens = 0;  // of a stream, at most
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

int score_language_model(const Options& options, const LoadedRun& run, at::Device device) {
  train::LanguageScore score;
  {
    Progress progress(options.split);
    score = train::score(*run.trained.model, split_of(run.streams, options.split), run.config(), device,
                         {options.tokens, [&](auto done, auto total) { progress.show(done, total); }});
  }
  if (options.tokens == 0) train::save_score(run.directory, score, options.split, run.trained.checksum);
  if (options.json) {
    const nlohmann::ordered_json result = {{"split", options.split},
                                           {"bytes", score.tally.predictions},
                                           {"bits_per_byte", score.tally.bits()},
                                           {"accuracy", score.tally.accuracy()},
                                           {"loss", score.tally.mean_loss()},
                                           {"by_position", train::by_position_json(score)}};
    fmt::print("{}\n", fields::dump(result, 2));
    return 0;
  }
  fmt::print("{} {:.4f} bits per byte ({} bytes), {:.2f} % of them predicted\nby position in the context:\n",
             options.split, score.tally.bits(), score.tally.predictions, 100 * score.tally.accuracy());
  for (const auto& [begin, end, tally] : score.by_position) {
    if (tally.predictions == 0) continue;
    const auto range = end == begin + 1 ? std::to_string(begin) : fmt::format("{} to {}", begin, end - 1);
    fmt::print("  {:>14} {:7.4f}\n", range, tally.bits());
  }
  return 0;
}

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const auto loaded = load_run(options.folder, device);
  if (loaded.is_language()) return score_language_model(options, loaded, device);
  if (options.tokens > 0) throw std::invalid_argument("--tokens is for language models.");
  const auto& [directory, trained, dataset, streams] = loaded;
  const auto& config = trained.identity.config;
  train::Predictions predictions;
  const auto& split = split_of(dataset, options.split);
  if (const auto cut = data::count_cut(split, config.model.max_length); cut > 0) {
    warn(fmt::format("{} of {} sequences are longer than model.max_length, {}, and are cut there.", cut, split.size(),
                     config.model.max_length));
  }
  {
    Progress progress(options.split);
    predictions = train::evaluate(*trained.model, split, config, device,
                                  [&](auto done, auto total) { progress.show(done, total); });
  }
  save_predictions(directory, predictions, options.split, trained.checksum);
  const auto rows = by_label(predictions, trained.identity.labels);
  if (options.json) {
    const nlohmann::ordered_json result = {{"split", options.split},
                                           {"sequences", predictions.tally.predictions},
                                           {"correct", predictions.tally.correct},
                                           {"accuracy", predictions.tally.accuracy()},
                                           {"loss", predictions.tally.mean_loss()},
                                           {"labels", rows}};
    fmt::print("{}\n", fields::dump(result, 2));
    return 0;
  }
  fmt::print("{} accuracy {:.2f} % ({} of {}), loss {:.4f}\n", options.split, 100 * predictions.tally.accuracy(),
             predictions.tally.correct, predictions.tally.predictions, predictions.tally.mean_loss());
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
  command.add_option("--tokens", options->tokens, "language models: score at most this many tokens; 0: all")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--json", options->json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      "Writes predictions.safetensors into the run directory: a classifier's predictions, or sums of a language "
      "model's\n"
      "losses, unless --tokens leaves out a part of the split. A language model is scored with a sliding window: "
      "every\n"
      "byte once, with at least half a context before it.\n\nExample:\n  hkt eval runs/hkt --split test");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
