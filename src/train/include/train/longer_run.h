// SPDX-License-Identifier: Apache-2.0
// Another number of epochs for a run that has begun.
#pragma once

#include <cstdint>
#include <string>

#include "train/checkpoint.h"

namespace hkt::train {

// Writes the run's config.json with the epochs of identity.config and returns what that does to the learning rate, in one
// sentence. Throws std::invalid_argument, before it writes, if the run has done so many epochs already or stopped early.
std::string change_epochs(const RunDirectory& run, const Identity& identity, std::int64_t steps_per_epoch,
                          const Warn& warn);

}  // namespace hkt::train
