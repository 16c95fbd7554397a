// SPDX-License-Identifier: Apache-2.0
// How a classifier's answers depend on where its sequences begin: coarse grids begin there.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "train/learner.h"
#include "train/run_directory.h"

namespace hkt::train {

// Throws std::invalid_argument if sequences of this config cannot begin elsewhere: language models, ListOps.
void check_phases(const Config& config);

struct Start {
  double accuracy = 0;
  double changed = 0;  // the share of sequences whose label is another than with all tokens
};

struct PhaseScore {
  std::vector<Start> starts;  // without the first 0, 1, 2, … tokens, `phases` included
  Predictions mean;           // logarithms of the mean probabilities over 0 to phases - 1 tokens left out
};

PhaseScore evaluate_phases(TransformerImpl& model, const data::Split& split, const Config& config, at::Device device,
                           std::int64_t phases, const Watch& watch = {});

// {"phases", "split", "model", "starts": [{"accuracy", "changed"}], "mean_accuracy"}; model: the checksum of the weights.
nlohmann::ordered_json phases_json(const PhaseScore& score, const std::string& split, const std::string& model);
// What `hkt eval --phases` left in a run directory, of these weights on test; nullopt if there is none that can be read.
std::optional<nlohmann::ordered_json> read_phases(const RunDirectory& run, const std::string& model);

}  // namespace hkt::train
