// SPDX-License-Identifier: Apache-2.0
// From trained and scored runs to the content of results.json: models, comparisons, records.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/experiment.h"
#include "experiments/protocol.h"
#include "experiments/step_time.h"
#include "row.h"

namespace hkt::experiments {

nlohmann::ordered_json tabulate(const Protocol& protocol, const ExperimentOptions& options,
                                const std::vector<Row>& rows, const std::vector<StepTime>& times, const TaskData& data);

void set_times(nlohmann::ordered_json& model, const StepTime& time);

}  // namespace hkt::experiments
