// What is known of a run once it is over, as one JSON object: the results of experiments are made of them, and the report.
#pragma once

#include <nlohmann/json.hpp>

#include "run_directory.h"

namespace hkt::train {

// {"name", "config", "summary", "parameters", "best_validation", "epochs", "probes", "test", "theory"}; what is not there
// yet is null or empty. Damaged files are left out, of which `warn` is told.
nlohmann::ordered_json record_of(const RunDirectory& run, const Warn& warn);

}  // namespace hkt::train
