// SPDX-License-Identifier: Apache-2.0
// Linformer: as many keys as there are features, however long the sequence is.
#include <ATen/ATen.h>

#include "sparse.h"

namespace hkt::peers {

at::Tensor linformer(const Inputs& inputs, const at::Tensor& reduction) {
  const auto length = inputs.q.size(2);
  if (length == 0) return at::zeros_like(inputs.v);
  const auto shares = reduction.narrow(1, 0, length);
  if (!inputs.lengths) {
    const auto reduced = [&](const at::Tensor& rows) { return at::matmul(shares, rows); };
    return at::scaled_dot_product_attention(inputs.q, reduced(inputs.k), reduced(inputs.v));
  }
  const auto padding = valid_rows(*inputs.lengths, inputs.q.size(2)).logical_not();
  const auto reduced = [&](const at::Tensor& rows) { return at::matmul(shares, rows.masked_fill(padding, 0)); };
  return at::scaled_dot_product_attention(inputs.q, reduced(inputs.k), reduced(inputs.v)).masked_fill(padding, 0);
}

}  // namespace hkt::peers
