// SPDX-License-Identifier: Apache-2.0
// From trained and scored runs to the content of results.json: models, comparisons, records.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/experiment.h"
#include "experiments/protocol.h"
#include "experiments/run.h"
#include "experiments/step_time.h"

namespace hkt::experiments {

// A model's runs, one per seed.
struct Row {
  ProtocolModel model;
  std::vector<Run> candidates;      // of the first seed
  std::vector<Run> runs;            // of one kind of model: classifiers or language models
  std::vector<std::string> chosen;  // the changes of the best candidate
};

nlohmann::ordered_json tabulate(const Protocol& protocol, const ExperimentOptions& options,
                                const std::vector<Row>& rows, const std::vector<StepTime>& times);

void set_times(nlohmann::ordered_json& model, const StepTime& time);

}  // namespace hkt::experiments
