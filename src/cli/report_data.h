// SPDX-License-Identifier: Apache-2.0
// What the report's page shows of results and runs: less than they hold, so that it stays small.
#pragma once

#include <nlohmann/json.hpp>

namespace hkt::cli {

// A record of experiments/record.h. Of the theory metrics of an epoch the means over blocks and heads are left, {"epoch",
// "kurtosis_ratio", "shares"} by level; λ of the last epoch; of the theory what is drawn.
// Of a run of an experiment, whose curves are those of all seeds, the last epoch.
nlohmann::ordered_json shown_run(nlohmann::ordered_json record);

// Eigenvalues are drawn of at most so many runs.
void leave_out_spectra(nlohmann::ordered_json& runs, std::size_t most);

// results.json without its runs, but with the "curves" of all seeds where there are few models, [{"model", "seed", "epochs",
// "bytes", "seconds", "training", "validation"}], the number of test sequences, and 95 % intervals of gains over seeds.
nlohmann::ordered_json shown_results(nlohmann::ordered_json results);

}  // namespace hkt::cli
