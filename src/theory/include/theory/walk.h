// SPDX-License-Identifier: Apache-2.0
// A model taken block by block, in float64, to see what its attention sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hkt/config.h"
#include "hkt/modules.h"
#include "hkt/theory.h"

namespace hkt::theory {

// The float64 model on the CPU; the given one is left alone.
Classifier exact_copy(const Classifier& model, const ModelConfig& config);

// What one block's attention sees of one sequence.
struct BlockView {
  std::vector<at::Tensor> inputs;  // X(l), [T_l, width]
  std::vector<at::Tensor> q, k;    // [heads, T_l, head width]

  HeadScores head(HierarchicalAttentionImpl& attention, const ModelConfig& config, std::int64_t index) const;
};

// Calls view(block, attention, what it sees) for each block in turn; tokens [T].
using View = std::function<void(std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen)>;
void walk(Classifier& model, const at::Tensor& tokens, const View& view);

}  // namespace hkt::theory
