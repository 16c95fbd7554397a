// SPDX-License-Identifier: Apache-2.0
// The progress of a run, by the files in its folder.
#include "experiments/run.h"

#include <numbers>
#include <stdexcept>

#include "experiments/record.h"
#include "experiments/sample.h"
#include "files/regular_file.h"
#include "files/safetensors.h"
#include "train/metrics.h"
#include "train/phases.h"

namespace hkt::experiments {
namespace {

namespace fs = std::filesystem;

std::string last_event(const Run& run) {
  const auto lines = train::read_metrics(run.directory().metrics());
  return lines.empty() ? "" : lines.back().value("event", "");
}

}  // namespace

bool Run::trained() const { return last_event(*this) == "end"; }

bool Run::diverged() const { return !scores && last_event(*this) == "diverged"; }

// False if the predictions are of another split or an earlier model, or damaged: then the run is scored again.
bool Run::scored() const {
  if (!trained() || !fs::exists(directory().predictions())) return false;
  try {
    const auto metadata = safetensors::read(directory().predictions()).metadata;
    return metadata.at("split") == "test" && metadata.at("model") == safetensors::read(directory().model()).checksum;
  } catch (const std::exception&) {
    return false;
  }
}

bool Run::phased() const {
  const auto found = train::read_phases(directory(), safetensors::read(directory().model()).checksum);
  return found && found->value("phases", std::int64_t{0}) == phases;
}

// Whether theory.json is of the current model, and not by a version that pooled sequences.
bool Run::examined() const {
  constexpr int within_sequences = 2;
  const auto theory = read_theory(directory());
  if (!theory) return false;
  const auto format = theory->value("format", nlohmann::ordered_json());
  return format.is_number_integer() && format >= within_sequences &&
         theory->at("model").value("checksum", "") == safetensors::read(directory().model()).checksum;
}

bool Run::sampled() const { return read_sample(directory()).is_object(); }

std::optional<double> Run::best_validation() const {
  if (diverged()) return {};
  const auto end = train::read_metrics(directory().metrics()).back();
  if (is_language()) return end.value("best_validation_loss", 0.0) / std::numbers::ln2;
  return end.value("best_validation_weighted_accuracy", end.value("best_validation_accuracy", 0.0));
}

Run::Stage Run::next() const {
  if (diverged()) return Stage::done;
  if (!trained()) return Stage::train;
  if (scores && !scored()) return Stage::eval;
  if (scores && phases > 1 && !phased()) return Stage::phases;
  if (examines && !examined()) return Stage::theory;
  return !prompt.empty() && !sampled() ? Stage::sample : Stage::done;
}

bool is_worse(const Run& first, const Run& second) {
  const auto a = first.best_validation(), b = second.best_validation();
  if (!a || !b) return !a && b;
  return first.is_language() ? *a > *b : *a < *b;
}

void check_config(const Run& run) {
  if (!run.directory().holds_run()) return;
  auto found = Config::from_json(read_file(run.directory().config()));
  found.train.threads = run.config.train.threads;  // may differ: another machine is not another experiment
  found.train.device = run.config.train.device;
  if (found != run.config) {
    throw std::invalid_argument(run.folder.string() +
                                " contains a run with another config; remove it, or choose another folder with --out.");
  }
}

}  // namespace hkt::experiments
