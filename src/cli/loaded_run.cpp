// SPDX-License-Identifier: Apache-2.0
// A trained run: its model, config and data, loaded for the commands that examine it.
#include "loaded_run.h"

#include <stdexcept>
#include <vector>

#include "experiment_view.h"
#include "files/json_fields.h"
#include "options.h"
#include "print.h"

namespace hkt::cli {

LoadedRun load_run(const std::string& folder, at::Device device) {
  LoadedRun run;
  run.directory = {folder};
  run.trained = train::load_model(run.directory, device, warn);
  run.dataset = load_data(run.config().data);
  if (run.dataset.labels != run.trained.identity.labels) {
    throw std::invalid_argument("the labels of the data have changed since the model was trained.");
  }
  if (run.dataset.fingerprint != run.trained.identity.data) {
    warn("the data has changed since the model was trained; its training examples may now be in another split.");
  }
  return run;
}

const data::Split& split_of(const data::Dataset& dataset, const std::string& name) {
  if (name == "train") return dataset.train;
  if (name == "validation") return dataset.validation;
  if (name != "test") {
    const std::vector<std::string> known = {"train", "validation", "test"};
    throw std::invalid_argument("--split is \"" + name + "\"; it must be one of " + fields::quoted_list(known) +
                                " (nearest: \"" + fields::nearest(name, known) + "\").");
  }
  if (dataset.test.size() == 0)
    throw std::invalid_argument("this run's data has no test split; use --split validation.");
  return dataset.test;
}

}  // namespace hkt::cli
