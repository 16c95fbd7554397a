// SPDX-License-Identifier: Apache-2.0
// Runs as processes of their own, several at a time.
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

// How far a run is, by its metrics.
struct RunProgress {
  std::string name;
  Run::Stage stage = Run::Stage::train;
  double steps = 0, step = 0;  // of training; 0 steps: it has not begun
  std::int64_t epoch = 0;
  double loss = 0, accuracy = 0, tokens_per_second = 0;
  std::optional<double> validation;  // accuracy of the last epoch
};

// Who watches; each may be left out.
struct PoolHooks {
  std::function<void(const std::vector<RunProgress>& running, std::size_t waiting)> progress;
  std::function<void(const std::string& line)> say;
  std::function<bool()> stop;  // asked several times a second
};

class RunPool {
 public:
  RunPool(std::size_t jobs, int threads, std::string device, PoolHooks hooks);

  // Runs what is not done yet. False: stopped. Throws std::invalid_argument where a folder holds another run, and
  // std::runtime_error where a run fails; one that is only to be chosen from may diverge.
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
  bool stopped_ = false;  // a run was asked to stop by somebody else
  int threads_;
  std::string device_;
  PoolHooks hooks_;
};

}  // namespace hkt::experiments
