// SPDX-License-Identifier: Apache-2.0
// Combinations of settings and their runs.
#include "experiments/sweep.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <system_error>

#include "files/quote.h"

namespace hkt::experiments {
namespace {

constexpr std::size_t most_trials = 1000;

std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    values.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

Axis axis_of(const std::string& text) {
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument("--grid " + text + " " + why + "."); };
  const auto equals = text.find('=');
  if (equals == std::string::npos || text.find('.') > equals) {
    refuse("is not of the form section.key=value,value, such as train.learning_rate=1e-4,5e-4");
  }
  Axis axis{text.substr(0, equals), values_of(text.substr(equals + 1))};
  if (axis.key.starts_with("data.")) refuse("changes the data; runs on other data cannot be compared");
  std::set<std::string> seen;
  for (const auto& value : axis.values) {
    if (value.empty()) refuse("has an empty value");
    if (!seen.insert(value).second) refuse("has the value " + quote(value) + " twice");
  }
  return axis;
}

// "learning_rate=1e-4-levels=3"; a number where that is no good name for a folder.
std::string name_of(const std::vector<std::string>& changes, std::size_t number) {
  std::string name;
  for (const auto& change : changes) {
    if (!name.empty()) name += '-';
    name += change.substr(change.find('.') + 1);
  }
  return is_plain_name(name) ? name : "trial-" + std::to_string(number + 1);
}

int jobs_for(const SweepOptions& options, const std::vector<Trial>& trials) {
  if (options.jobs > 0) return options.jobs;
  if (trials.front().run.is_language()) return 1;  // with all threads
  constexpr int jobs_on_gpu = 4;
  return std::min(static_cast<int>(trials.size()), options.device.is_cuda() ? jobs_on_gpu : at::get_num_threads());
}

// Of equals the first stays first.
void best_first(std::vector<Trial>& trials) {
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (is_worse(trials[b].run, trials[a].run)) return true;
    return !is_worse(trials[a].run, trials[b].run) && a < b;
  });
  std::vector<Trial> sorted;
  sorted.reserve(trials.size());
  for (const auto i : order) sorted.push_back(std::move(trials[i]));
  trials = std::move(sorted);
}

}  // namespace

std::vector<Axis> axes_of(const std::vector<std::string>& grid) {
  if (grid.empty()) throw std::invalid_argument("--grid section.key=value,value is required: the settings to try.");
  std::vector<Axis> axes;
  std::set<std::string> keys;
  for (const auto& text : grid) {
    axes.push_back(axis_of(text));
    if (!keys.insert(axes.back().key).second) {
      throw std::invalid_argument("--grid has the key " + quote(axes.back().key) + " twice.");
    }
  }
  return axes;
}

std::vector<Trial> trials_of(const std::vector<Axis>& axes, const train::ConfigDraft& base, const TaskData& data,
                             const std::filesystem::path& folder) {
  std::vector<std::vector<std::string>> combinations = {{}};
  for (const auto& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& begin : combinations) {
      for (const auto& value : axis.values) {
        longer.push_back(begin);
        longer.back().push_back(axis.key + "=" + value);
      }
      if (longer.size() > most_trials) {
        throw std::invalid_argument("--grid has more than " + std::to_string(most_trials) + " combinations.");
      }
    }
    combinations = std::move(longer);
  }
  std::vector<Trial> trials;
  for (const auto& changes : combinations) {
    const auto name = name_of(changes, trials.size());
    const auto config = base.with(changes).with_absolute_paths();
    trials.push_back({changes, {name, fitted(config, data), folder / name}});
    trials.back().run.scores = false;  // only trained and validated: the test split is not for choosing
  }
  return trials;
}

bool run_sweep(std::vector<Trial>& trials, const SweepOptions& options) {
  const auto folder = trials.front().run.folder.parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::invalid_argument(folder.string() + " cannot be created: " + error.message() + ".");
  const int jobs = jobs_for(options, trials);
  RunPool pool(static_cast<std::size_t>(jobs), std::max(1, at::get_num_threads() / jobs), options.device.str(),
               options.pool);
  std::vector<Run> runs;
  for (const auto& trial : trials) runs.push_back(trial.run);
  if (!pool.run(runs)) return false;
  best_first(trials);
  return true;
}

}  // namespace hkt::experiments
