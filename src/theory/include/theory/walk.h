// SPDX-License-Identifier: Apache-2.0
// Runs a model block by block in float64 and shows the inputs, queries and keys of its attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hkt/model_config.h"
#include "hkt/modules.h"
#include "hkt/theory.h"

namespace hkt::theory {

// A float64 copy on the CPU.
Transformer exact_copy(const TransformerImpl& model);

// The inputs, queries and keys of one block's attention for one sequence.
struct BlockView {
  at::Tensor normed;               // [T, width], the module's input
  std::vector<at::Tensor> inputs;  // X(l), [T_l, width]; level 0 alone if the filters act on queries and keys
  std::vector<at::Tensor> q, k;    // [heads, T_l, head width]; k has as many heads as there are of keys

  HeadScores head(HierarchicalAttentionImpl& attention, const ModelConfig& config, std::int64_t index) const;
};

// Calls view(block, attention, seen) for each block in order; tokens [T].
using View = std::function<void(std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen)>;
void walk(TransformerImpl& model, const at::Tensor& tokens, const View& view);

// From the output of the last block, [1, T, width]: the logits of a classifier, [classes], or of all tokens, [T, vocab].
at::Tensor logits_of(TransformerImpl& model, const at::Tensor& x);

}  // namespace hkt::theory
