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
  train::ConfigDraft config;                         // not yet fitted to the data
  std::vector<std::vector<std::string>> candidates;  // changes to try on the first seed; validation decides
  std::vector<std::string> baselines;                // the models it is compared with
  std::string chosen_as = {};  // takes the changes that were chosen for this model, in place of candidates of its own
};

struct Protocol {
  std::string experiment;
  std::vector<std::int64_t> seeds;
  bool examined = false;              // whether `hkt theory` runs on all models, every seed
  std::int64_t phases = 1;            // see `hkt eval --phases`, which is run for all models and seeds if this is more
  bool linear = false;                // whether linear models of n-grams are trained beside them
  std::vector<ProtocolModel> models;  // gains and ratios in the table are relative to the first
};

struct Experiment {
  std::string name, what;
};
std::vector<Experiment> experiments();
// Those of "all": with the quick budget only the tables of the paper, and never those that need data of the user's.
std::vector<Experiment> experiments_of_all(Budget budget);

// quick: few epochs, one seed, and only some of the models; language models are small. full: with the baselines the paper lacks,
// and three seeds where that is affordable. `changes` are applied to the preset before the models are derived from it.
Protocol protocol(const std::string& experiment, Budget budget, const std::vector<std::string>& changes = {});

}  // namespace hkt::experiments
