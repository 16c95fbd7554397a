// SPDX-License-Identifier: Apache-2.0
// What a model would answer without a level, or without a part of its input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "hkt/modules.h"

namespace hkt::theory {

// The log-probabilities of a classifier's classes, [classes], or after each token those of the next one, [T, vocab]; tokens [T].
at::Tensor log_probabilities(TransformerImpl& model, const at::Tensor& tokens);

// The same with the scores of one level set to zero in all blocks and heads, so that it tells no keys apart. The other levels
// keep their weights.
at::Tensor log_probabilities_without_level(TransformerImpl& model, const at::Tensor& tokens, std::int64_t level);

// Some positions of the input, ascending.
using Unit = std::vector<std::int64_t>;

// The log-probabilities of the classes, or of the token after the last one, without each unit, [units, classes or vocab]: its
// tokens are taken out of the sequence or, with a replacement, replaced. At least one token must be left.
at::Tensor log_probabilities_without_units(TransformerImpl& model, const at::Tensor& tokens,
                                           const std::vector<Unit>& units,
                                           std::optional<std::int64_t> replacement = {});

}  // namespace hkt::theory
