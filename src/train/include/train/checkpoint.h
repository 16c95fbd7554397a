// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the best model, and the state from which a killed run goes on to the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hkt/config.h"
#include "hkt/modules.h"
#include "hkt/safetensors.h"
#include "train/learner.h"
#include "train/run_directory.h"

namespace hkt::train {

// What a model is, beside its weights; it travels in the metadata of both files.
struct Identity {
  Config config;
  std::vector<std::string> labels;  // the names of the classes
  std::string data;                 // the fingerprint of what it learns from
};

// Where training stands.
struct Position {
  std::int64_t step = 0;   // steps done in all
  std::int64_t epoch = 0;  // the epoch it is in, and how many of its batches are done
  std::int64_t batch = 0;
  Tally epoch_tally, recent_tally;  // of this epoch; since the last line of metrics
  std::int64_t best_epoch = -1;
  double best_accuracy = 0, best_loss = 0;
  bool finished = false;
  std::uint64_t metrics_bytes = 0;
  double seconds = 0;  // spent on steps in this epoch
};

struct State {
  Position position;
  NamedTensors parameters, optimizer;
  NamedTensors best;  // the parameters of the best epoch, so that model.safetensors can be made anew
  at::Tensor generator, cuda_generator;
};

void save_state(const RunDirectory& run, const Identity& identity, const State& state);

// The last state, or where that is damaged the one before, of which `warn` is told; nothing if there is none. Throws
// std::runtime_error where there is no good one, it belongs to another run, or says that it stood where it cannot have.
std::optional<State> load_state(const RunDirectory& run, const Identity& identity, std::int64_t steps_per_epoch,
                                const Warn& warn);

void save_model(const RunDirectory& run, const Identity& identity, const NamedTensors& parameters);

struct TrainedModel {
  Identity identity;
  std::string checksum;  // of model.safetensors; empty where the weights are from a state
  Classifier model = nullptr;
};
// Where model.safetensors is damaged the best weights are taken from the state, or the one before, of which `warn` is told.
TrainedModel load_model(const RunDirectory& run, at::Device device, const Warn& warn);

// Copies that later steps leave alone.
NamedTensors copy_of_parameters(const torch::nn::Module& module);
void set_parameters(torch::nn::Module& module, const NamedTensors& parameters);

}  // namespace hkt::train
