// SPDX-License-Identifier: Apache-2.0
// The protocol of the experiments: which models are trained, on what, for how long, with which seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/presets.h"

namespace hkt::experiments {

enum class Budget : std::uint8_t { quick, full };

struct ProtocolModel {
  std::string name, what;
  train::ConfigDraft config;                         // to be fitted to the data
  std::vector<std::vector<std::string>> candidates;  // changes, of which the best on validation is taken, first seed
  std::vector<std::string> baselines;                // the models it is compared with
};

struct Protocol {
  std::string experiment;
  std::vector<std::int64_t> seeds;
  bool examined = false;              // whether each model's first seed is examined by `hkt theory`, too
  std::vector<ProtocolModel> models;  // the first is what the table's gains and ratios refer to
};

struct Experiment {
  std::string name, what;
};
// Those that "all" stands for: with the quick budget the tables of the paper alone.
std::vector<Experiment> experiments(Budget budget);

// quick: few epochs, one seed, and of the paper's tables only standard attention and HKT. full: with the baselines the
// paper lacks, and three seeds where that is affordable. `changes` are laid over the preset before the models are derived
// from it.
Protocol protocol(const std::string& experiment, Budget budget, const std::vector<std::string>& changes = {});

}  // namespace hkt::experiments
