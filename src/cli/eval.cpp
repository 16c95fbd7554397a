// SPDX-License-Identifier: Apache-2.0
// hkt eval: loss and accuracy of a classifier, or bits per byte of a language model, on a split of its data or on any file.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "classifier_view.h"
#include "commands.h"
#include "data/batches.h"
#include "data/labelled_file.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "progress.h"
#include "train/phases.h"
#include "train/presets.h"
#include "train/stored_score.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder, split = "test", data;
  std::vector<std::string> changes;
  std::size_t mistakes = 5;
  std::int64_t tokens = 0;  // of a stream, at most
  std::int64_t phases = 1;
  bool json = false;
  MachineOptions machine;
};

void save_predictions(const train::RunDirectory& run, const train::Predictions& predictions, const std::string& split,
                      const std::string& model) {
  save_safetensors(run.predictions(), {{"logits", predictions.logits}, {"labels", predictions.labels}},
                   {{"split", split}, {"model", model}});
}

// A language model on a split, or all of a file, by that name.
train::LanguageScore score_stream(const Options& options, const train::TrainedModel& trained,
                                  const data::Stream& stream, const std::string& name, at::Device device) {
  train::LanguageScore score;
  {
    Progress progress(name);
    score = train::score(*trained.model, stream, trained.identity.config, device,
                         {options.tokens, [&](auto done, auto total) { progress.show(done, total); }});
  }
  if (options.json) {
    const nlohmann::ordered_json result = {{options.data.empty() ? "split" : "data", name},
                                           {"bytes", score.tally.predictions},
                                           {"bits_per_byte", score.tally.bits()},
                                           {"accuracy", score.tally.accuracy()},
                                           {"loss", score.tally.mean_loss()},
                                           {"by_position", train::by_position_json(score)}};
    fmt::print("{}\n", fields::dump(result, 2));
    return score;
  }
  fmt::print("{} {:.4f} bits per byte ({} bytes), {:.2f} % of them predicted\nby position in the context:\n",
             printable(name), score.tally.bits(), score.tally.predictions, 100 * score.tally.accuracy());
  for (const auto& [begin, end, tally] : score.by_position) {
    if (tally.predictions == 0) continue;
    const auto range = end == begin + 1 ? std::to_string(begin) : fmt::format("{} to {}", begin, end - 1);
    fmt::print("  {:>14} {:7.4f}\n", range, tally.bits());
  }
  return score;
}

int score_language_model(const Options& options, const LoadedRun& run, at::Device device) {
  const auto score = score_stream(options, run.trained, split_of(run.streams, options.split), options.split, device);
  if (options.tokens == 0) train::save_score(run.directory, score, options.split, run.trained.checksum);
  return 0;
}

// A classifier on a split, or all of a file, by that name.
ScoredSplit score_classifier(const Options& options, const train::TrainedModel& trained, const data::Split& split,
                             const std::string& name, at::Device device) {
  const auto& config = trained.identity.config;
  if (const auto cut = data::count_cut(split, config.model.max_length); cut > 0) {
    warn(fmt::format("{} of {} sequences are longer than model.max_length, {}, and are cut there.", cut, split.size(),
                     config.model.max_length));
  }
  ScoredSplit scored{split, trained.identity, {}, {}};
  {
    Progress progress(name);
    scored.predictions = train::evaluate(*trained.model, split, config, device,
                                         [&](auto done, auto total) { progress.show(done, total); });
  }
  scored.score = train::score(scored.predictions, options.mistakes);
  if (options.json) {
    nlohmann::ordered_json result = {{options.data.empty() ? "split" : "data", name}};
    result.update(json_of(scored));
    fmt::print("{}\n", fields::dump(result, 2));
  } else {
    print(scored, name);
  }
  return scored;
}

// predictions.safetensors and score.json, whose mistakes are enough to look at in a report.
void save_scored(const LoadedRun& run, ScoredSplit scored, const Options& options) {
  constexpr std::size_t enough = 20;
  save_predictions(run.directory, scored.predictions, options.split, run.trained.checksum);
  if (options.mistakes < enough) scored.score = train::score(scored.predictions, enough);
  save_score(run.directory, scored, options.split, run.trained.checksum);
}

// How the answers on a split depend on where sequences begin. Writes phases.json.
int score_phases(const Options& options, const LoadedRun& run, at::Device device) {
  train::check_phases(run.config());
  train::PhaseScore score;
  {
    Progress progress(options.split);
    score = train::evaluate_phases(*run.trained.model, split_of(run.dataset, options.split), run.config(), device,
                                   options.phases, [&](auto done, auto total) { progress.show(done, total); });
  }
  const auto json = train::phases_json(score, options.split, run.trained.checksum);
  write_file(run.directory.phases(), fields::dump(json, 1) + "\n");
  if (options.json) {
    fmt::print("{}\n", fields::dump(json, 2));
    return 0;
  }
  fmt::print("{}, without the first tokens of every sequence:\n{:>10}  {:>10}  {:>14}\n", options.split, "left out",
             "accuracy", "other labels");
  for (std::size_t skip = 0; skip < score.starts.size(); ++skip)
    fmt::print("{:>10}  {:>8.2f} %  {:>12.2f} %\n", skip, 100 * score.starts[skip].accuracy,
               100 * score.starts[skip].changed);
  fmt::print("mean probabilities over 0 to {} left out: accuracy {:.2f} %\n", options.phases - 1,
             100 * score.mean.tally.accuracy());
  return 0;
}

// The data of the model, read by what the user says of the file's columns.
DataConfig data_of(const Options& options, DataConfig trained_on) {
  auto changes = options.changes;
  changes.push_back("data.train=" + fields::dump(options.data));
  const auto said = train::ConfigDraft("text").with(changes).config().data;
  for (const auto& change : options.changes) {
    const auto key = change.substr(0, change.find('='));
    if (key == "data.text") {
      trained_on.text = said.text;
    } else if (key == "data.label") {
      trained_on.label = said.label;
    } else if (key == "data.header") {
      trained_on.header = said.header;
    } else if (key == "data.quotes") {
      trained_on.quotes = said.quotes;
    } else {
      throw std::invalid_argument(
          "--set is " + quote(change) +
          "; of a file to be scored it takes data.text, data.label, data.header and data.quotes.");
    }
  }
  return trained_on;
}

// The model alone is needed: neither the data it was trained on, nor more of its run.
int score_file(const Options& options, at::Device device) {
  const auto trained = train::load_model({options.folder}, device, warn);
  if (trained.identity.config.model.kind == ModelKind::language) {
    if (!options.changes.empty()) {
      throw std::invalid_argument("--set says how a file of labels is read; " + options.folder +
                                  " contains a language model, which takes any text.");
    }
    const auto file = data::load_file_stream(options.data, trained.identity.config.data.task);
    for (const auto& notice : file.notices) warn(notice);
    score_stream(options, trained, file.stream, options.data, device);
    return 0;
  }
  if (options.tokens > 0) throw std::invalid_argument("--tokens is for language models.");
  data::LabelledFile file;
  {
    Progress progress("data");
    file =
        data::load_labelled_file(options.data, data_of(options, trained.identity.config.data), trained.identity.labels,
                                 [&](auto done, auto total, const auto& what) { progress.show(done, total, what); });
  }
  for (const auto& notice : file.notices) warn(notice);
  score_classifier(options, trained, file.split, options.data, device);
  return 0;
}

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  if (!options.data.empty()) return score_file(options, device);
  const auto loaded = load_run(options.folder, device);
  if (options.phases > 1) return score_phases(options, loaded, device);
  if (loaded.is_language()) return score_language_model(options, loaded, device);
  if (options.tokens > 0) throw std::invalid_argument("--tokens is for language models.");
  save_scored(loaded,
              score_classifier(options, loaded.trained, split_of(loaded.dataset, options.split), options.split, device),
              options);
  return 0;
}

}  // namespace

void add_eval(CLI::App& program, Action& action) {
  constexpr std::size_t most_mistakes = 10'000;
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("eval", "Score a trained model on a split of its data, or on a file");
  command.add_option("folder", options->folder, "a run directory")->required();
  auto* split = command.add_option("--split", options->split, "train, validation or test")->capture_default_str();
  auto* file = command
                   .add_option("--data", options->data,
                               "score a file instead: of labels and texts, or of any text for a language model")
                   ->excludes(split);
  command
      .add_option("--set", options->changes,
                  "how the file is read, such as data.text=review data.label=stars; see hkt config text")
      ->allow_extra_args(true)
      ->needs(file);
  command.add_option("--mistakes", options->mistakes, "classifiers: show this many of the worst")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{0}, most_mistakes));
  command.add_option("--tokens", options->tokens, "language models: score at most this many tokens; 0: all")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--phases", options->phases,
                  "classifiers: leave out the first 0 to so many tokens instead, and average all but the last")
      ->check(CLI::Range(1, 64))
      ->excludes(file);
  command.add_flag("--json", options->json, "print JSON");
  add_machine_options(command, options->machine);
  command.footer(
      "Of a classifier: accuracy, precision, recall and F1 of every class, the confusion matrix, calibration (how "
      "often\n"
      "predictions of a certain probability are right) and the worst mistakes. --data needs no training data; the "
      "file\n"
      "is read as for hkt train, and its labels are those of the model.\n"
      "A language model is scored with a sliding window: every byte once, with at least half a context before it. "
      "With\n"
      "--data it is scored on any file or folder of texts, read as for hkt train lm.\n"
      "--phases says how much the answers depend on where sequences begin, and writes phases.json.\n"
      "Without --data it writes predictions.safetensors into the run directory: a classifier's predictions, or sums "
      "of\n"
      "a language model's losses, unless --tokens leaves out a part of the split; and score.json of a classifier, "
      "which\n"
      "hkt report shows.\n\n"
      "Examples:\n  hkt eval runs/hkt --split test\n  hkt eval models/mine --data reviews.tsv --json\n"
      "  hkt eval models/mine --data reviews.csv --set data.text=review data.label=stars\n"
      "  hkt eval models/enwik8-hkt --data README.md");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
