// SPDX-License-Identifier: Apache-2.0
// The training settings of a model.
#pragma once

#include <cstdint>
#include <string>

namespace hkt {

enum class Padding : std::uint8_t { batch, full };
enum class Precision : std::uint8_t { automatic, float32, bfloat16 };
enum class ClassWeights : std::uint8_t { none, balanced };
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

struct TrainConfig {
  std::int64_t epochs = 8;
  std::int64_t epoch_steps = 0;  // steps between two validations of a language model; 0: one pass over the data
  std::int64_t batch = 64;
  std::int64_t accumulate = 1;  // parts of a batch that are computed one after the other; their gradients are added
  double learning_rate = 5e-4;
  double weight_decay = 0.01;  // of matrices only
  double beta2 = 0.999;        // of AdamW
  double warmup = 0.05;        // share of all steps in which the learning rate rises; after that it decays as a cosine
  double final_rate = 0;       // where the cosine ends, as a share of learning_rate
  // balanced: in a classifier's loss a sequence counts by the inverse of its class's share; the mean weight is 1.
  ClassWeights class_weights = ClassWeights::none;
  double gradient_norm = 1;   // the global gradient norm is clipped to this; 0: never
  std::int64_t patience = 0;  // stop after so many epochs without a better result on validation; 0: never
  std::int64_t seed = 0;      // of initial weights, dropout and data order
  std::string init;           // a run directory whose best weights training starts from; empty: at random
  std::int64_t threads = 0;   // of the CPU; the last bits of results depend on it; 0: one per core
  DeviceKind device = DeviceKind::automatic;  // likewise; automatic: CUDA if available
  bool deterministic = false;  // bit-identical runs on CUDA too, at some cost; runs on the CPU always are
  Padding padding = Padding::batch;
  // A classifier's training sequences begin at one of their first so many tokens, drawn anew in each epoch; 1: at the first.
  std::int64_t random_start = 1;
  std::int64_t bucket = 64;  // sequences are sorted by length within groups of so many batches; 1: no sorting
  Precision precision = Precision::automatic;  // bfloat16 (by autocast) on CUDA, float32 on the CPU
  double checkpoint_seconds = 60;              // between two checkpoints within an epoch
  std::int64_t validation_tokens = 0;          // of the stream, at most, that a language model is validated on; 0: all
  bool tensorboard = false;                    // also write the metrics as TensorBoard event files

  bool operator==(const TrainConfig&) const = default;
};

}  // namespace hkt
