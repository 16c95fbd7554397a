// SPDX-License-Identifier: Apache-2.0
// A trained run: its model, config and data, loaded for the commands that examine it.
#include "loaded_run.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "data/batches.h"
#include "data/windows.h"
#include "experiment_view.h"
#include "files/json_fields.h"
#include "options.h"
#include "print.h"

namespace hkt::cli {

namespace {

// The part of that name; throws if there is none.
template <class Parts>
const auto& part_of(const Parts& parts, const std::string& name, bool has_test) {
  if (name == "train") return parts.train;
  if (name == "validation") return parts.validation;
  if (name != "test") {
    const std::vector<std::string> known = {"train", "validation", "test"};
    throw std::invalid_argument("--split is \"" + name + "\"; it must be one of " + fields::quoted_list(known) +
                                " (nearest: \"" + fields::nearest(name, known) + "\").");
  }
  if (!has_test) throw std::invalid_argument("this run's data has no test split; use --split validation.");
  return parts.test;
}

}  // namespace

LoadedRun load_run(const std::string& folder, at::Device device) {
  LoadedRun run;
  run.directory = {folder};
  run.trained = train::load_model(run.directory, device, warn);
  if (is_stream(run.config().data.task)) {
    run.streams = load_streams(run.config().data);
  } else {
    run.dataset = load_data(run.config().data);
  }
  if (run.dataset.labels != run.trained.identity.labels) {
    throw std::invalid_argument("the labels of the data have changed since the model was trained.");
  }
  const auto& fingerprint = run.is_language() ? run.streams.fingerprint : run.dataset.fingerprint;
  if (fingerprint != run.trained.identity.data) {
    warn("the data has changed since the model was trained; its training examples may now be in another split.");
  }
  return run;
}

void require_hkt(const LoadedRun& run, const std::string& command) {
  const auto attention = run.config().model.attention;
  if (attention == AttentionKind::hkt) return;
  throw std::invalid_argument(run.directory.folder.string() + " has model.attention \"" + name_of(attention) + "\"; " +
                              command + " knows \"hkt\" alone.");
}

ModelConfig model_of_run(const std::string& folder) try {
  return train::load_model({folder}, at::kCPU, warn).identity.config.model;
} catch (const std::runtime_error& error) {  // a wrong argument here
  throw std::invalid_argument(error.what());
}

const data::Split& split_of(const data::Dataset& dataset, const std::string& name) {
  return part_of(dataset, name, dataset.test.size() > 0);
}

const data::Stream& split_of(const data::Streams& streams, const std::string& name) {
  return part_of(streams, name, !streams.test.tokens.empty());
}

std::vector<at::Tensor> inputs_of(const LoadedRun& run, const std::string& split, const Inputs& inputs) {
  constexpr std::int64_t long_enough = 1024;  // a window of a stream has no end of its own
  const auto longest = run.config().model.max_length;
  const auto seed = static_cast<std::uint64_t>(inputs.seed);
  if (run.is_language()) {
    return data::drawn_windows(split_of(run.streams, split), std::min(longest, long_enough), inputs.count, seed);
  }
  return data::balanced_sequences(
      split_of(run.dataset, split),
      {.max_length = longest, .count = inputs.count, .wanted_length = inputs.wanted_length, .seed = seed});
}

}  // namespace hkt::cli
