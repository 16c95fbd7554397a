// SPDX-License-Identifier: Apache-2.0
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
    throw std::invalid_argument("the data now has other labels than the model was trained with.");
  }
  if (run.dataset.fingerprint != run.trained.identity.data) {
    warn("the data is not what the model was trained on; what it has learned from may now be in another split.");
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
    throw std::invalid_argument("this run's data has no test split; --split validation is there.");
  return dataset.test;
}

}  // namespace hkt::cli
