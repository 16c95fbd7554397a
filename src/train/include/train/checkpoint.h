// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the best model, and the state from which a killed run resumes with bit-identical results.
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

// Describes a model apart from its weights; stored in the metadata of both files.
struct Identity {
  Config config;
  std::vector<std::string> labels;  // the names of the classes
  std::string data;                 // fingerprint of the data it is trained on
};

// The progress of a run.
struct Position {
  std::int64_t step = 0;            // steps done in total
  std::int64_t epoch = 0;           // the current epoch
  std::int64_t batch = 0;           // batches of it that are done
  Tally epoch_tally, recent_tally;  // of this epoch, and since the last metrics line
  std::int64_t best_epoch = -1;
  Quality best;
  bool finished = false;
  std::uint64_t metrics_bytes = 0;
  double seconds = 0;  // spent on steps in this epoch
};

struct State {
  Position position;
  std::int64_t epochs = 0;  // the train.epochs that it was saved with; those of the run may be others now
  NamedTensors parameters, optimizer;
  NamedTensors best;  // the parameters of the best epoch, so that model.safetensors can be written again
  at::Tensor generator, cuda_generator;
};

void save_state(const RunDirectory& run, const Identity& identity, const State& state);

// Apart from train.epochs the config must be the one that the state was saved with. Never past the run's epochs.
// The last state, or if it is damaged the previous one, which is reported to `warn`; nullopt if there is none. Throws
// std::runtime_error if both are damaged, have another config or an impossible position, and std::invalid_argument if the
// data has changed.
std::optional<State> load_state(const RunDirectory& run, const Identity& identity, std::int64_t steps_per_epoch,
                                const Warn& warn);

void save_model(const RunDirectory& run, const Identity& identity, const NamedTensors& parameters);

struct TrainedModel {
  Identity identity;
  std::string checksum;  // of model.safetensors; empty if the weights are from a state
  Transformer model;
};
// If model.safetensors is missing or damaged, the best weights come from the state or the previous one; `warn` is called.
TrainedModel load_model(const RunDirectory& run, at::Device device, const Warn& warn);

// Copies on the CPU, which later steps do not change.
NamedTensors copy_of_parameters(const torch::nn::Module& module);
void set_parameters(torch::nn::Module& module, const NamedTensors& parameters);

}  // namespace hkt::train
