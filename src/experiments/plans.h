// SPDX-License-Identifier: Apache-2.0
// Plans: how the models of an experiment are derived from a preset.
#pragma once

#include <string>
#include <vector>

#include "experiments/protocol.h"
#include "train/presets.h"

namespace hkt::experiments {

using Changes = std::vector<std::string>;
using train::ConfigDraft;

// Which experiments `all` means: with the quick budget the paper's alone; what needs data of the user's is in neither.
enum class Of : std::uint8_t { paper, all, none };

struct Plan {
  Experiment experiment;
  std::string preset;
  Changes changes, quick;  // of the preset; `quick` after them, with that budget
  void (*add_models)(Protocol& protocol, const ConfigDraft& hkt, Budget budget);
  Of of = Of::all;
};

const std::vector<Plan>& classifier_plans();
const std::vector<Plan>& controls_plans();
const std::vector<Plan>& language_plans();

ProtocolModel variant(const ConfigDraft& base, const std::string& name, const std::string& what, const Changes& changes,
                      const Changes& baselines = {});

// The feed-forward width with which standard attention has at least as many parameters as HKT.
std::int64_t matching_feedforward(const ConfigDraft& hkt);
// That with which a model has at least so many parameters; its own if it has.
std::int64_t matching_feedforward(const ConfigDraft& draft, std::int64_t parameters);

// "3 levels"
std::string levels_of(const ConfigDraft& config);

}  // namespace hkt::experiments
