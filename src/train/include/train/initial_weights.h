// SPDX-License-Identifier: Apache-2.0
// Fine-tuning: a new run that starts from the weights of another one.
#pragma once

#include "hkt/modules.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"

namespace hkt::train {

// Sets a new model to the best weights of the run `from`. A classifier of other classes keeps its own new head, which is
// said to `warn`. Throws std::invalid_argument, in one sentence, if there is no such run or its weights do not fit.
void start_from(const RunDirectory& from, const Identity& identity, TransformerImpl& model, const Warn& warn);

}  // namespace hkt::train
