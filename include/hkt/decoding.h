// SPDX-License-Identifier: Apache-2.0
// Generation with a LanguageModel: the state of some sequences that grow token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hkt/export.h"
#include "hkt/modules.h"

namespace hkt {

// The caches of `batch` sequences: keys of all levels and values of every token, the current coarse queries, and the last inputs
// of each filter. Every sequence has its own length. The logits are those of a forward pass over the whole sequence. The coarse
// grid starts at a sequence's first token: without it, the rest is another sequence.
//   The model is used as it is; its dtype and device must not change while the state exists. There is no gradient.
class HKT_EXPORT DecodingState {
 public:
  // Up to `capacity` tokens each; `take_back` is how far below the longest length that a sequence has had it may be truncated.
  DecodingState(LanguageModel model, std::int64_t batch, std::int64_t capacity, std::int64_t take_back = 0);
  ~DecodingState();
  DecodingState(DecodingState&&) noexcept;
  DecodingState& operator=(DecodingState&&) noexcept;

  // Appends tokens [B, n], int64, n ≥ 1, to all sequences: a prompt, or drafts to be verified. Returns the logits after each of
  // them, [B, n, vocab]. Long inputs are taken in pieces.
  at::Tensor extend(const at::Tensor& tokens);

  // The same, returning only the logits after the last token, [B, vocab]. With `lengths`, prompts of different lengths, padded
  // on the left: the last lengths[b] tokens of row b count. The sequences must be empty then.
  at::Tensor prefill(const at::Tensor& tokens, const std::vector<std::int64_t>& lengths = {});

  // Appends one token to every sequence, [B]. Returns the logits after it, [B, vocab].
  at::Tensor step(const at::Tensor& tokens);

  // Takes back tokens, so that sequence b has lengths[b] left, or empties all sequences.
  void truncate(const std::vector<std::int64_t>& lengths);
  void clear();

  const std::vector<std::int64_t>& lengths() const;
  std::int64_t capacity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hkt
