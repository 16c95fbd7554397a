// SPDX-License-Identifier: Apache-2.0
// Executes runs as child processes, several in parallel.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/child.h"
#include "experiments/run.h"
#include "train/metrics.h"

namespace hkt::experiments {

// The progress of a run, from its metrics.
struct RunProgress {
  std::string name;
  Run::Stage stage = Run::Stage::train;
  double steps = 0, step = 0;  // training steps; steps is 0 before training begins
  std::int64_t epoch = 0;
  double loss = 0, accuracy = 0, tokens_per_second = 0;
  bool language = false;
  std::optional<double> validation;  // of the last epoch: accuracy, or bits per byte of a language model
};

// Callbacks; each is optional.
struct PoolHooks {
  std::function<void(const std::vector<RunProgress>& running, std::size_t waiting)> progress;
  std::function<void(const std::string& line)> say;
  std::function<bool()> stop;  // polled several times a second; true stops all runs
};

class RunPool {
 public:
  RunPool(std::size_t jobs, int threads, std::string device, PoolHooks hooks);

  // Executes the runs that are not done yet; false if stopped. Throws std::invalid_argument if a folder contains another
  // run, and std::runtime_error if a run fails. A candidate may diverge.
  bool run(const std::vector<Run>& runs);

 private:
  struct Active {
    const Run* run;
    Run::Stage stage;
    std::unique_ptr<Child> child;
    train::MetricsReader metrics;
    RunProgress progress;
  };
  Active start(const Run& run) const;
  void advance(std::vector<Active>& active);
  void say(const std::string& line) const;

  std::size_t jobs_;
  bool stopped_ = false;  // a run was stopped from outside
  int threads_;
  std::string device_;
  PoolHooks hooks_;
};

}  // namespace hkt::experiments
