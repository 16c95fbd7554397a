// SPDX-License-Identifier: Apache-2.0
// One run of one model in an experiment: `hkt train`, then optionally `hkt eval` and `hkt theory`.
#pragma once

#include <cstdint>
#include <filesystem>
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

  train::RunDirectory directory() const { return {folder}; }
  bool trained() const;
  bool diverged() const;  // a candidate that ended because its loss or gradient was not finite
  bool scored() const;
  bool examined() const;
  double best_validation() const;  // accuracy; 0 if it diverged

  enum class Stage : std::uint8_t { train, eval, theory, done };
  Stage next() const;  // the next stage to run
};

// Throws std::invalid_argument if the folder contains a run with another config, which would be scored in place of this one.
void check_config(const Run& run);

}  // namespace hkt::experiments
