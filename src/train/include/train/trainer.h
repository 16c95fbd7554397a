// SPDX-License-Identifier: Apache-2.0
// The training loop: from a config and data to a run directory. It can be stopped and resumed at any step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/event_file.h"
#include "train/learner.h"
#include "train/metrics.h"
#include "train/run_directory.h"
#include "train/throughput.h"
#include "train/training_data.h"

namespace hkt::train {

struct StepProgress {  // within an epoch
  std::int64_t step, steps, epoch, epochs;
  Tally tally;  // of the epoch so far
  double tokens_per_second;
  double utilisation;  // see Throughput
};

struct EpochResult {
  std::int64_t epoch;
  Tally train, validation;
  Quality quality;  // on validation
  bool best;
};

// Callbacks; each is optional.
struct Hooks {
  std::function<void(const StepProgress&)> step;
  std::function<void(const EpochResult&)> epoch;
  Warn warn;
  std::function<bool()> stop;  // polled after every step; true stops the run
  // Metrics before the first and after each epoch.
  std::function<nlohmann::ordered_json(const TransformerImpl&)> probe;
};

struct Outcome {
  bool finished;  // false: stopped, can be resumed
  std::int64_t step, best_epoch;
  Quality best;
};

class Trainer {
 public:
  // The folder must exist and contain config.json.
  Trainer(RunDirectory run, Identity identity, const TrainingData& data, at::Device device, Hooks hooks);

  // Resumes from the saved state if there is one. Throws std::runtime_error if a loss or gradient is not finite;
  // checkpoints are kept.
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;

  void restore();
  void begin_metrics();
  bool run_epoch();  // false: stopped
  void train_step(const data::Batch& batch);
  void read_pending();
  void write_step_line();
  void write(const nlohmann::ordered_json& line);
  void end_epoch();
  void save();
  [[noreturn]] void fail_not_finite(const std::string& what, std::int64_t step);
  bool patience_is_over() const;
  std::vector<std::vector<std::vector<double>>> level_weights();
  nlohmann::ordered_json probed(nlohmann::ordered_json line);
  bool is_weighted() const { return settings().class_weights != ClassWeights::none; }
  bool is_language() const { return identity_.config.model.kind == ModelKind::language; }
  double tokens_per_second() const;
  const TrainConfig& settings() const { return identity_.config.train; }

  RunDirectory run_;
  Identity identity_;
  const TrainingData& data_;
  at::Device device_;
  Hooks hooks_;
  std::int64_t steps_per_epoch_, steps_, line_every_;

  std::unique_ptr<Learner> learner_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;  // for TensorBoard
  Throughput throughput_;
  Position position_;
  NamedTensors best_;
  std::vector<StepResult> pending_;  // results that are not read yet
  std::vector<std::int64_t> pending_sizes_;
  std::int64_t tokens_ = 0;  // since the epoch was begun or resumed
  double wait_seconds_ = 0;  // in that time, spent waiting for data
  double last_gradient_norm_ = 0;
  std::int64_t saved_step_ = -1;
  std::int64_t extended_from_ = 0;  // the epochs that the resumed state was saved with, if they were others
  Clock::time_point epoch_begin_, last_save_;
};

}  // namespace hkt::train
