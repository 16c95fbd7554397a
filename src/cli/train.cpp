// SPDX-License-Identifier: Apache-2.0
// hkt train: from a preset or a config to a run directory.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <numbers>
#include <stdexcept>

#include "commands.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "data/summary.h"
#include "data_view.h"
#include "interrupt.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "progress.h"
#include "theory/lab.h"
#include "train/linear_baseline.h"
#include "train/longer_run.h"
#include "train/presets.h"
#include "train/trainer.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;

// Inputs of the per-epoch theory metrics: enough for 256 rows of level 2, at little cost next to an epoch.
constexpr std::int64_t probed_sequences = 4, longest_probe = 256;

struct Options {
  std::string preset, out, resume, init;
  std::vector<std::string> changes;
  std::optional<std::int64_t> seed;
  bool quiet = false;
  MachineOptions machine;
};

// One of the two, and what the trainer sees of it.
struct Prepared {
  data::Dataset dataset;
  data::Streams streams;
  train::Identity identity;
  std::unique_ptr<train::TrainingData> data;
};

std::unique_ptr<Prepared> prepare(const train::ConfigDraft& draft) {
  Progress progress("data");
  auto prepared = std::make_unique<Prepared>();
  const auto& wanted = draft.config().data;
  const data::Notify notify = [&](std::int64_t done, std::int64_t total, const std::string& what) {
    progress.show(done, total, what);
  };
  const auto take = [&](const auto& data, const std::vector<std::string>& labels) {
    prepared->identity = {draft.fitted_to(data.vocab, std::ssize(labels)), labels, data.fingerprint};
    prepared->data = train::training_data(data, prepared->identity.config);
    for (const auto& notice : data.notices) progress.say("hkt: " + notice);
  };
  if (is_stream(wanted.task)) {
    prepared->streams = data::load_streams(wanted, notify);
    take(prepared->streams, {});
  } else {
    prepared->dataset = data::load(wanted, notify);
    take(prepared->dataset, prepared->dataset.labels);
  }
  return prepared;
}

void describe(const Prepared& prepared) {
  const auto& model = prepared.identity.config.model;
  if (model.kind == ModelKind::language) {
    fmt::print("{} training bytes, {} validation bytes, {} documents; {} parameters\n",
               prepared.streams.train.tokens.size(), prepared.streams.validation.tokens.size(),
               prepared.streams.documents, count_parameters(model));
    std::fflush(stdout);
    return;
  }
  print_summary(data::summarise(prepared.dataset, model.max_length), model.max_length);
}

// Of data that is text; nullopt otherwise.
std::optional<train::LinearScore> linear_score(const Prepared& prepared) {
  const auto& config = prepared.identity.config;
  if (config.data.task != Task::text && config.data.task != Task::imdb) return {};
  return train::linear_baseline(prepared.dataset, config.model.max_length);
}

std::string line_of(const train::StepProgress& now, bool language) {
  const auto begin = fmt::format("epoch {}/{}", now.epoch + 1, now.epochs);
  if (language) {
    return fmt::format("{}  {:.3f} bits per byte  {:.0f} tokens/s  {:.0f} % of a matrix product's rate", begin,
                       now.tally.bits(), now.tokens_per_second, 100 * now.utilisation);
  }
  return fmt::format("{}  loss {:.3f}  accuracy {:.1f} %  {:.0f} tokens/s", begin, now.tally.mean_loss(),
                     100 * now.tally.accuracy(), now.tokens_per_second);
}

// What the best epoch is chosen by, where it is not the accuracy itself.
std::string weighted(const train::Quality& quality, const TrainConfig& config) {
  if (config.class_weights == ClassWeights::none) return {};
  return fmt::format(" ({:.2f} % weighted by class)", 100 * quality.weighted_accuracy);
}

std::string line_of(const train::EpochResult& result, const TrainConfig& config, bool language) {
  const auto best = result.best ? "  best" : "";
  if (language) {
    return fmt::format("epoch {:2}  training {:.4f} bits per byte  validation {:.4f} bits per byte{}", result.epoch + 1,
                       result.train.bits(), result.validation.bits(), best);
  }
  return fmt::format(
      "epoch {:2}  training loss {:.4f}, accuracy {:.2f} %  validation loss {:.4f}, accuracy {:.2f} %{}{}",
      result.epoch + 1, result.train.mean_loss(), 100 * result.train.accuracy(), result.validation.mean_loss(),
      100 * result.validation.accuracy(), weighted(result.quality, config), best);
}

train::Hooks hooks_for(Progress& progress, const TrainConfig& config, bool language) {
  train::Hooks hooks;
  hooks.step = [&progress, language](const train::StepProgress& now) {
    progress.show(now.step, now.steps, line_of(now, language));
  };
  hooks.epoch = [&progress, &config, language](const train::EpochResult& result) {
    progress.say(line_of(result, config, language));
  };
  hooks.warn = [&](const std::string& text) { progress.say("hkt: " + text); };
  hooks.stop = [] { return Interrupt::asked(); };
  return hooks;
}

// A resumed run stays on its device unless another is requested.
at::Device device_of(const Options& options, const TrainConfig& config) {
  if (options.machine.device == "auto" && config.device == DeviceKind::cpu) return at::kCPU;
  if (options.machine.device == "auto" && config.device == DeviceKind::cuda) {
    if (const auto trouble = why_no_cuda()) {
      throw std::invalid_argument("the run's train.device is \"cuda\", but " + *trouble +
                                  "; use --device cpu to train without a GPU.");
    }
  }
  const auto device = chosen_device(options.machine);
  if (config.device != DeviceKind::automatic && device.is_cuda() != (config.device == DeviceKind::cuda)) {
    warn("the run began on another kind of device, so it will not be bit-identical to an uninterrupted run.");
  }
  return device;
}

int run(const Options& options, const train::RunDirectory& directory, const Prepared& prepared) {
  const Interrupt interrupt;
  const auto device = device_of(options, prepared.identity.config.train);
  at::set_num_threads(options.machine.threads.value_or(static_cast<int>(prepared.identity.config.train.threads)));
  const bool language = prepared.identity.config.model.kind == ModelKind::language;
  const auto linear = options.quiet ? std::nullopt : linear_score(prepared);
  if (linear) print_linear_score(*linear, prepared.dataset.train.size());
  train::Outcome outcome = {};
  {
    Progress progress(directory.folder.filename().string());
    auto hooks = hooks_for(progress, prepared.identity.config.train, language);
    if (options.quiet) hooks.step = {}, hooks.epoch = {};
    const auto probed = prepared.data->examples(longest_probe, probed_sequences);
    const bool hkt = prepared.identity.config.model.attention == AttentionKind::hkt;  // of others it would say nothing
    if (hkt && !probed.empty()) hooks.probe = [&](const TransformerImpl& now) { return theory::probe(now, probed); };
    train::Trainer trainer(directory, prepared.identity, *prepared.data, device, std::move(hooks));
    outcome = trainer.run();
  }
  if (!outcome.finished) {
    fmt::print("stopped after step {}; resume with `hkt train --resume {}`\n", outcome.step, directory.folder.string());
    std::fflush(stdout);  // while SIGPIPE is still ignored
    return interrupted;
  }
  if (!options.quiet) {
    const auto result = language ? fmt::format("{:.4f} bits per byte", outcome.best.loss / std::numbers::ln2)
                                 : fmt::format("accuracy {:.2f} %{}", 100 * outcome.best.accuracy,
                                               weighted(outcome.best, prepared.identity.config.train));
    fmt::print("done: best validation {} after epoch {}; the model is {}\n", result, outcome.best_epoch + 1,
               directory.model().string());
  }
  if (linear) warn_of_linear_score(*linear, outcome.best.accuracy);
  return 0;
}

int begin(const Options& options) {
  if (options.preset.empty()) throw std::invalid_argument("a preset, a config file or --resume DIR is required.");
  if (options.out.empty()) throw std::invalid_argument("--out DIR is required: the folder for the run's files.");
  auto changes = options.changes;
  if (options.seed) changes.push_back("train.seed=" + std::to_string(*options.seed));
  if (options.machine.threads) changes.push_back("train.threads=" + std::to_string(*options.machine.threads));
  const auto preset = train::ConfigDraft(options.preset);
  auto draft = options.init.empty() ? preset.with(changes)
                                    : preset.started_from(options.init, model_of_run(options.init), changes);
  // Written into the config, because a resumed run must use the same; a wrong device fails here, before any work.
  const auto& asked = draft.config().train;
  std::vector<std::string> settled;
  if (asked.threads == 0) settled.push_back("train.threads=" + std::to_string(at::get_num_threads()));
  if (asked.device == DeviceKind::automatic || options.machine.device != "auto") {
    settled.push_back(std::string("train.device=") + (chosen_device(options.machine).is_cuda() ? "cuda" : "cpu"));
  }
  draft = draft.with(settled).with_absolute_paths();  // the run must find its data from wherever it is resumed
  device_of(options, draft.config().train);
  train::check_free(options.out);
  const auto prepared = prepare(draft);
  if (!options.quiet) describe(*prepared);
  const train::RunDirectory directory{options.out};
  const train::RunLock lock(directory);
  train::create_run(directory, prepared->identity.config.to_json());
  try {
    return run(options, directory, *prepared);
  } catch (...) {
    // Not even the first state could be written, so there is nothing to resume.
    if (!std::filesystem::exists(directory.state())) train::remove_run(directory);
    throw;
  }
}

int resume(const Options& options) {
  const bool more_epochs = options.changes.size() == 1 && options.changes.front().starts_with("train.epochs=");
  if (!options.preset.empty() || !options.out.empty() || !options.init.empty() || options.seed ||
      (!options.changes.empty() && !more_epochs)) {
    throw std::invalid_argument(
        "--resume uses the config of that run; it takes no preset, --out, --init or --seed, and of --set only "
        "train.epochs=N.");
  }
  const auto directory = train::open_run(options.resume);
  if (fs::exists(directory.model()) && !fs::exists(directory.state()) && !fs::exists(directory.previous_state())) {
    throw std::invalid_argument(options.resume +
                                " contains a model without its training state, so training cannot be resumed.");
  }
  const train::RunLock lock(directory);
  const auto prepared = prepare(train::ConfigDraft(directory.config().string()).with(options.changes));
  if (more_epochs) {
    const auto steps = prepared->data->steps_per_epoch();
    fmt::print("{}\n", train::change_epochs(directory, prepared->identity, steps, warn));
    std::fflush(stdout);
  }
  return run(options, directory, *prepared);
}

}  // namespace

void add_train(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("train", "Train a classifier or a language model and write a run directory");
  command.add_option("preset", options->preset, "a preset or a config file in JSON");
  command
      .add_option("--set", options->changes,
                  "change a key of the config: section.key=value; `hkt config PRESET` lists them")
      ->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for the run's files");
  command.add_option("--init", options->init,
                     "start from the weights of this run, with its model; other classes get a new head");
  command.add_option("--resume", options->resume,
                     "resume the run in this folder; with --set train.epochs=N for more epochs than planned");
  command.add_option("--seed", options->seed, "the same as --set train.seed=N");
  command.add_flag("--quiet", options->quiet, "no progress and no summary");
  add_machine_options(command, options->machine);
  std::string footer = "Presets:\n";
  for (const auto& preset : train::presets()) footer += fmt::format("  {:12} {}\n", preset.name, preset.what);
  footer += "\nExamples:\n  hkt train listops --out runs/hkt\n";
  footer += "  hkt train listops --set model.levels=1 --out runs/standard     standard attention\n";
  footer += "  hkt train text --set data.train=reviews.csv data.text=review data.label=stars --out runs/mine\n";
  footer += "  hkt train text --init models/imdb-hkt --set data.train=reviews.csv --out runs/tuned       fine-tuning\n";
  footer += "  hkt train lm --set data.train=books --out runs/books\n  hkt train --resume runs/hkt";
  command.footer(footer);
  command.callback([options, &action] {
    action = [options] { return options->resume.empty() ? begin(*options) : resume(*options); };
  });
}

}  // namespace hkt::cli
