// SPDX-License-Identifier: Apache-2.0
// From logits to a token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>

#include "hkt/export.h"

namespace hkt {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most probable token
  std::int64_t top_k = 0;  // only the k most probable tokens; 0: all
  double top_p = 1;        // of these only the most probable ones that have this probability together; 1: all
  std::uint64_t seed = 0;
};

// Draws tokens; the same seed gives the same ones on every machine that computes the same logits.
class HKT_EXPORT Sampler {
 public:
  // Throws std::invalid_argument, in one sentence, for a value out of range.
  explicit Sampler(const SamplingOptions& options);

  // logits: [vocab], any floating dtype and device. Of equal logits the lower token counts as the more probable one.
  std::int64_t sample(const at::Tensor& logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 generator_;
};

}  // namespace hkt
