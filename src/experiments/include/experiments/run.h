// SPDX-License-Identifier: Apache-2.0
// One run of one model in an experiment: `hkt train`, then optionally `hkt eval` once or twice, `hkt theory` and `hkt generate`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "hkt/config.h"
#include "train/run_directory.h"

namespace hkt::experiments {

struct Run {
  std::string name;
  Config config;
  std::filesystem::path folder;
  bool scores = true;  // false: a candidate, only trained and validated
  bool examines = false;
  std::int64_t phases = 1;  // more: `hkt eval --phases` is run, too
  std::string prompt = {};  // what a language model continues as a sample of its text; empty: no sample

  bool is_language() const { return config.model.kind == ModelKind::language; }
  train::RunDirectory directory() const { return {folder}; }
  bool trained() const;
  bool diverged() const;  // a candidate that ended because its loss or gradient was not finite
  bool scored() const;
  bool phased() const;
  bool examined() const;
  bool sampled() const;
  // Of the best epoch the accuracy, weighted by class where the loss is, or the bits per byte of a language model; nullopt if it
  // diverged.
  std::optional<double> best_validation() const;

  enum class Stage : std::uint8_t { train, eval, phases, theory, sample, done };
  Stage next() const;  // the next stage to run
};

// Whether the first is worse on validation: lower accuracy, or more bits per byte; one that diverged is worst.
bool is_worse(const Run& first, const Run& second);

// Throws std::invalid_argument if the folder contains a run with another config, which would be scored in place of this one.
void check_config(const Run& run);

}  // namespace hkt::experiments
