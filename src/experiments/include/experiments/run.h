// SPDX-License-Identifier: Apache-2.0
// One run of one model in an experiment: `hkt train`, and as far as it is wanted `hkt eval` and `hkt theory`.
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
  bool scores = true;  // false: only trained, to choose by validation
  bool examines = false;

  train::RunDirectory directory() const { return {folder}; }
  bool trained() const;
  bool diverged() const;  // one only to choose from, whose loss or gradient was not finite at last
  bool scored() const;
  bool examined() const;
  double best_validation() const;  // accuracy, of a trained one

  enum class Stage : std::uint8_t { train, eval, theory, done };
  Stage next() const;  // what is to be done first
};

// Throws std::invalid_argument where the folder holds a run with another config, which would be scored as if it were this.
void check_config(const Run& run);

}  // namespace hkt::experiments
