// SPDX-License-Identifier: Apache-2.0
// A model of an experiment with its runs.
#pragma once

#include <string>
#include <vector>

#include "experiments/protocol.h"
#include "experiments/run.h"

namespace hkt::experiments {

// A model's runs, one per seed.
struct Row {
  ProtocolModel model;
  std::vector<Run> candidates;      // of the first seed
  std::vector<Run> runs;            // of one kind of model: classifiers or language models
  std::vector<std::string> chosen;  // the changes of the best candidate
};

}  // namespace hkt::experiments
