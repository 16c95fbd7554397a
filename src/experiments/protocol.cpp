// SPDX-License-Identifier: Apache-2.0
// Experiments by name, and what their plans share.
#include "experiments/protocol.h"

#include <stdexcept>

#include "files/json_fields.h"
#include "plans.h"

namespace hkt::experiments {
namespace {

std::vector<Plan> plans() {
  auto all = classifier_plans();
  for (const auto* more : {&controls_plans(), &language_plans()}) all.insert(all.end(), more->begin(), more->end());
  return all;
}

Plan plan_of(const std::string& experiment) {
  Changes names;
  for (const auto& plan : plans()) {
    if (plan.experiment.name == experiment) return plan;
    names.push_back(plan.experiment.name);
  }
  throw std::invalid_argument("unknown experiment \"" + experiment + "\"; it must be one of " +
                              fields::quoted_list(names) + " or \"all\" (nearest: \"" +
                              fields::nearest(experiment, names) + "\").");
}

}  // namespace

ProtocolModel variant(const ConfigDraft& base, const std::string& name, const std::string& what, const Changes& changes,
                      const Changes& baselines) {
  return {name, what, base.with(changes), {}, baselines, {}};
}

std::int64_t matching_feedforward(const ConfigDraft& hkt) {
  return matching_feedforward(hkt.with({"model.levels=1"}), count_parameters(hkt.config().model));
}

std::int64_t matching_feedforward(const ConfigDraft& draft, std::int64_t parameters) {
  auto model = draft.config().model;
  while (count_parameters(model) < parameters) ++model.feedforward;
  return model.feedforward;
}

std::string levels_of(const ConfigDraft& config) { return std::to_string(config.config().model.levels) + " levels"; }

std::vector<Experiment> experiments() {
  std::vector<Experiment> result;
  for (const auto& plan : plans()) result.push_back(plan.experiment);
  return result;
}

std::vector<Experiment> experiments_of_all(Budget budget) {
  std::vector<Experiment> result;
  for (const auto& plan : plans()) {
    if (plan.of == Of::paper || (plan.of == Of::all && budget == Budget::full)) result.push_back(plan.experiment);
  }
  return result;
}

Protocol protocol(const std::string& experiment, Budget budget, const std::vector<std::string>& changes) {
  const auto plan = plan_of(experiment);
  for (const auto& change : changes) {
    if (change.starts_with("train.seed"))
      throw std::invalid_argument("train.seed cannot be changed; the protocol sets the seeds.");
  }
  auto all = plan.changes;
  if (budget == Budget::quick) all.insert(all.end(), plan.quick.begin(), plan.quick.end());
  all.insert(all.end(), changes.begin(), changes.end());
  Protocol result{.experiment = experiment, .seeds = {0}, .models = {}};
  plan.add_models(result, ConfigDraft(plan.preset).with(all), budget);
  return result;
}

}  // namespace hkt::experiments
