// SPDX-License-Identifier: Apache-2.0
// The training loop: from a config and data to a run directory, stoppable and resumable at any step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/batches.h"
#include "train/checkpoint.h"
#include "train/learner.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace hkt::train {

struct StepProgress {  // in mid-epoch
  std::int64_t step, steps, epoch, epochs;
  Tally tally;  // of the epoch so far
  double tokens_per_second;
};

struct EpochResult {
  std::int64_t epoch;
  Tally train, validation;
  bool best;
};

// Who watches; each may be left out.
struct Hooks {
  std::function<void(const StepProgress&)> step;
  std::function<void(const EpochResult&)> epoch;
  Warn warn;
  std::function<bool()> stop;                               // asked after every step
  std::function<nlohmann::ordered_json(Classifier)> probe;  // looks at the model before the first and after each epoch
};

struct Outcome {
  bool finished;  // false: stopped, to be resumed
  std::int64_t step, best_epoch;
  double best_accuracy;
};

// Throws std::invalid_argument where there is nothing to train on or to validate with.
void check_data(const data::Dataset& dataset);

class Trainer {
 public:
  // The folder must exist and hold config.json.
  Trainer(RunDirectory run, Identity identity, const data::Dataset& dataset, at::Device device, Hooks hooks);

  // From the state if there is one. Throws std::runtime_error where the loss is not finite; checkpoints stay.
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;

  void restore();
  void begin_metrics();
  bool run_epoch();  // false: stopped
  void take(const data::Batch& batch);
  void settle();
  void write_step_line();
  void end_epoch();
  void save();
  [[noreturn]] void fail_not_finite(const std::string& what, std::int64_t step);
  bool patience_is_over() const;
  std::vector<std::vector<std::vector<double>>> level_weights();
  nlohmann::ordered_json probed(nlohmann::ordered_json line);
  const TrainConfig& settings() const { return identity_.config.train; }

  RunDirectory run_;
  Identity identity_;
  const data::Dataset& dataset_;
  at::Device device_;
  Hooks hooks_;
  data::Shape shape_;
  std::int64_t steps_per_epoch_, steps_, line_every_;

  std::unique_ptr<Learner> learner_;
  std::unique_ptr<MetricsFile> metrics_;
  Position position_;
  NamedTensors best_;
  std::vector<StepResult> pending_;  // not looked at yet
  std::vector<std::int64_t> pending_sizes_;
  std::int64_t tokens_ = 0;  // since the epoch began here
  double wait_seconds_ = 0;  // of it for data
  double last_gradient_norm_ = 0;
  std::int64_t saved_step_ = -1;
  Clock::time_point epoch_begin_, last_save_;
};

}  // namespace hkt::train
