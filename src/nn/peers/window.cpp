// SPDX-License-Identifier: Apache-2.0
// Attention over a pattern of keys, and Longformer's pattern.
#include <ATen/ATen.h>

#include "sparse.h"

namespace hkt::peers {

at::Tensor valid_rows(const at::Tensor& lengths, std::int64_t rows) {
  const auto place = at::arange(rows, lengths.options());
  return place.unsqueeze(0).lt(lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(3);
}

at::Tensor pattern_of(const Window& window, std::int64_t length, at::Device device) {
  const auto place = at::arange(length, at::TensorOptions(at::kLong).device(device));
  const auto query = place.unsqueeze(1), key = place.unsqueeze(0);
  return (query - key).abs().le(window.reach).logical_or(query.lt(window.globals)).logical_or(key.lt(window.globals));
}

// Rows of padding may see everything, because a softmax over nothing is not a number; they become zero afterwards.
at::Tensor attention_over(const Inputs& inputs, const at::Tensor& pattern) {
  if (inputs.q.size(2) == 0) return at::zeros_like(inputs.v);
  auto mask = inputs.causal ? pattern.tril() : pattern;
  if (mask.dim() == 3) mask = mask.unsqueeze(1);
  if (!inputs.lengths) return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, mask);
  const auto valid = valid_rows(*inputs.lengths, inputs.q.size(2));
  mask = mask.logical_and(valid.transpose(2, 3)).logical_or(valid.logical_not());
  return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, mask).masked_fill(valid.logical_not(), 0);
}

at::Tensor window(const Inputs& inputs, const Window& window) {
  return attention_over(inputs, pattern_of(window, inputs.q.size(2), inputs.q.device()));
}

}  // namespace hkt::peers
