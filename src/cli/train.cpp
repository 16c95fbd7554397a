// SPDX-License-Identifier: Apache-2.0
// hkt train: from a preset or a config to a run directory.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "commands.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "interrupt.h"
#include "options.h"
#include "print.h"
#include "progress.h"
#include "theory/lab.h"
#include "train/presets.h"
#include "train/trainer.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;

// Inputs of the per-epoch theory metrics: enough for 256 rows of level 2, at little cost next to an epoch.
constexpr std::int64_t probed_sequences = 4, longest_probe = 256;

struct Options {
  std::string preset, out, resume;
  std::vector<std::string> changes;
  std::optional<std::int64_t> seed;
  bool quiet = false;
  MachineOptions machine;
};

struct Prepared {
  data::Dataset dataset;
  train::Identity identity;
};

Prepared prepare(const train::ConfigDraft& draft) {
  Progress progress("data");
  Prepared prepared;
  prepared.dataset = data::load(
      draft.config().data,
      [&](std::int64_t done, std::int64_t total, const std::string& what) { progress.show(done, total, what); });
  prepared.identity = {draft.fitted_to(prepared.dataset.vocab, std::ssize(prepared.dataset.labels)),
                       prepared.dataset.labels, prepared.dataset.fingerprint};
  train::check_data(prepared.dataset);
  for (const auto& notice : prepared.dataset.notices) progress.say("hkt: " + notice);
  return prepared;
}

void describe(const Prepared& prepared) {
  const auto& data = prepared.dataset;
  fmt::print("{} training sequences, {} validation sequences, {} classes\n", data.train.size(), data.validation.size(),
             data.labels.size());
  const auto longest = prepared.identity.config.model.max_length;
  for (const auto& [name, split] : {std::pair("training", &data.train), std::pair("validation", &data.validation)}) {
    if (const auto cut = data::count_cut(*split, longest); cut > 0) {
      fmt::print("{} of {} {} sequences are longer than model.max_length, {}, and are cut there\n", cut, split->size(),
                 name, longest);
    }
  }
  std::fflush(stdout);
}

train::Hooks hooks_for(Progress& progress) {
  train::Hooks hooks;
  hooks.step = [&](const train::StepProgress& now) {
    progress.show(now.step, now.steps,
                  fmt::format("epoch {}/{}  loss {:.3f}  accuracy {:.1f} %  {:.0f} tokens/s", now.epoch + 1, now.epochs,
                              now.tally.mean_loss(), 100 * now.tally.accuracy(), now.tokens_per_second));
  };
  hooks.epoch = [&](const train::EpochResult& result) {
    progress.say(
        fmt::format("epoch {:2}  training loss {:.4f}, accuracy {:.2f} %  validation loss {:.4f}, accuracy {:.2f} %{}",
                    result.epoch + 1, result.train.mean_loss(), 100 * result.train.accuracy(),
                    result.validation.mean_loss(), 100 * result.validation.accuracy(), result.best ? "  best" : ""));
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
  train::Outcome outcome = {};
  {
    Progress progress(directory.folder.filename().string());
    auto hooks = hooks_for(progress);
    if (options.quiet) hooks.step = {}, hooks.epoch = {};
    const auto& model = prepared.identity.config.model;
    const auto probed = data::longest_sequences(prepared.dataset.validation, std::min(model.max_length, longest_probe),
                                                probed_sequences);
    if (!probed.empty()) hooks.probe = [&](const Classifier& now) { return theory::probe(now, model, probed); };
    train::Trainer trainer(directory, prepared.identity, prepared.dataset, device, std::move(hooks));
    outcome = trainer.run();
  }
  if (!outcome.finished) {
    fmt::print("stopped after step {}; resume with `hkt train --resume {}`\n", outcome.step, directory.folder.string());
    std::fflush(stdout);  // while SIGPIPE is still ignored
    return interrupted;
  }
  if (!options.quiet) {
    fmt::print("done: best validation accuracy {:.2f} % after epoch {}; the model is {}\n", 100 * outcome.best_accuracy,
               outcome.best_epoch + 1, directory.model().string());
  }
  return 0;
}

int begin(const Options& options) {
  if (options.preset.empty()) throw std::invalid_argument("a preset, a config file or --resume DIR is required.");
  if (options.out.empty()) throw std::invalid_argument("--out DIR is required: the folder for the run's files.");
  auto changes = options.changes;
  if (options.seed) changes.push_back("train.seed=" + std::to_string(*options.seed));
  if (options.machine.threads) changes.push_back("train.threads=" + std::to_string(*options.machine.threads));
  auto draft = train::ConfigDraft(options.preset).with(changes);
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
  if (!options.quiet) describe(prepared);
  const train::RunDirectory directory{options.out};
  const train::RunLock lock(directory);
  train::create_run(directory, prepared.identity.config.to_json());
  try {
    return run(options, directory, prepared);
  } catch (...) {
    // Not even the first state could be written, so there is nothing to resume.
    if (!std::filesystem::exists(directory.state())) train::remove_run(directory);
    throw;
  }
}

int resume(const Options& options) {
  if (!options.preset.empty() || !options.out.empty() || !options.changes.empty() || options.seed) {
    throw std::invalid_argument("--resume uses the config of that run; it takes no preset, --out, --set or --seed.");
  }
  const auto directory = train::open_run(options.resume);
  if (fs::exists(directory.model()) && !fs::exists(directory.state()) && !fs::exists(directory.previous_state())) {
    throw std::invalid_argument(options.resume +
                                " contains a model without its training state, so training cannot be resumed.");
  }
  const train::RunLock lock(directory);
  return run(options, directory, prepare(train::ConfigDraft(directory.config().string())));
}

}  // namespace

void add_train(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("train", "Train a classifier and write a run directory");
  command.add_option("preset", options->preset, "a preset or a config file in JSON");
  command.add_option("--set", options->changes, "change a key of the config: section.key=value")
      ->allow_extra_args(true);
  command.add_option("--out", options->out, "the folder for the run's files");
  command.add_option("--resume", options->resume, "resume the run in this folder");
  command.add_option("--seed", options->seed, "the same as --set train.seed=N");
  command.add_flag("--quiet", options->quiet, "no progress and no summary");
  add_machine_options(command, options->machine);
  std::string footer = "Presets:\n";
  for (const auto& preset : train::presets()) footer += fmt::format("  {:12} {}\n", preset.name, preset.what);
  footer += "\nExamples:\n  hkt train listops --out runs/hkt\n";
  footer += "  hkt train listops --set model.levels=1 --out runs/standard     standard attention\n";
  footer += "  hkt train text --set data.train=reviews.tsv --out runs/mine\n  hkt train --resume runs/hkt";
  command.footer(footer);
  command.callback([options, &action] {
    action = [options] { return options->resume.empty() ? begin(*options) : resume(*options); };
  });
}

}  // namespace hkt::cli
