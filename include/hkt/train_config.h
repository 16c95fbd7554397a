// SPDX-License-Identifier: Apache-2.0
// How a model is trained.
#pragma once

#include <cstdint>

namespace hkt {

enum class Padding : std::uint8_t { batch, full };
enum class Precision : std::uint8_t { automatic, float32, bfloat16 };
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

struct TrainConfig {
  std::int64_t epochs = 8;
  std::int64_t batch = 64;
  double learning_rate = 5e-4;
  double weight_decay = 0.01;  // of matrices alone
  double warmup = 0.05;        // the share of all steps in which the learning rate rises; then it falls as a cosine
  double gradient_norm = 1;    // what the norm of all gradients is cut to; 0: never
  std::int64_t patience = 0;   // epochs without a better validation accuracy after which to stop; 0: never
  std::int64_t seed = 0;       // of initial weights, dropout and the order of the data
  std::int64_t threads = 0;    // of the CPU, on which the last bits depend; 0: as many as there are cores
  DeviceKind device = DeviceKind::automatic;  // likewise; automatic: CUDA where it can be used
  bool deterministic = false;  // equal bits on every run on CUDA too, at some cost; the CPU always has them
  Padding padding = Padding::batch;
  std::int64_t bucket = 64;  // batches whose sequences are sorted by length together; 1: batches as they are drawn
  Precision precision = Precision::automatic;  // bfloat16 (by autocast) on CUDA, float32 on the CPU
  double checkpoint_seconds = 60;              // between two writings of the state within an epoch

  bool operator==(const TrainConfig&) const = default;
};

}  // namespace hkt
