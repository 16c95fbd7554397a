// SPDX-License-Identifier: Apache-2.0
// The byte language models that are measured; one level is standard attention with rotary positions.
#pragma once

#include <cstdint>

#include "hkt/config.h"

namespace hkt::bench {

struct LanguageSize {
  std::int64_t heads, width, blocks, feedforward;
};

inline Config language_config(const LanguageSize& size, std::int64_t levels, std::int64_t length) {
  Config config;
  auto& model = config.model;
  model.kind = ModelKind::language;
  model.mask = Mask::causal;
  model.positions = Positions::rotary;
  model.filter = Filter::depthwise;
  model.kernel_size = 4;
  model.levels = levels;
  model.heads = size.heads;
  model.width = size.width;
  model.blocks = size.blocks;
  model.feedforward = size.feedforward;
  model.biases = false;
  model.dropout = 0;
  model.vocab = 256;
  model.max_length = length;
  config.train.batch = 8;
  return config;
}

}  // namespace hkt::bench
