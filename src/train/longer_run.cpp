// SPDX-License-Identifier: Apache-2.0
// Changing the length of a run: the schedule is that of the new length from the next step on.
#include "train/longer_run.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "files/whole_file.h"
#include "train/optimizer.h"

namespace hkt::train {
namespace {

std::string rate_text(double rate) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.3g", rate);
  return text.data();
}

}  // namespace

std::string change_epochs(const RunDirectory& run, const Identity& identity, std::int64_t steps_per_epoch,
                          const Warn& warn) {
  const auto state = load_state(run, identity, steps_per_epoch, warn);
  const auto& now = identity.config.train;
  const auto before = state ? state->epochs : now.epochs;
  write_file(run.config(), identity.config.to_json());
  if (!state || state->position.step == 0)
    return "nothing is trained yet, so the schedule is simply that of the new number of epochs.";
  const auto step = state->position.step, steps = now.epochs * steps_per_epoch, old_steps = before * steps_per_epoch;
  if (steps == old_steps) return "train.epochs is " + std::to_string(now.epochs) + " already; the schedule stays.";
  const auto old_rate = learning_rate(now, std::min(step, old_steps - 1), old_steps);
  return "train.epochs is " + std::to_string(now.epochs) + " and was " + std::to_string(before) + ": from step " +
         std::to_string(step + 1) + " of " + std::to_string(steps) + " the learning rate follows the schedule of " +
         std::to_string(now.epochs) + " epochs, which goes on at " + rate_text(learning_rate(now, step, steps)) +
         (step < old_steps ? " in place of " : " after ") + rate_text(old_rate) + "; the result is not that of " +
         std::to_string(now.epochs) + " epochs from the start, whose earlier steps had other rates.";
}

}  // namespace hkt::train
