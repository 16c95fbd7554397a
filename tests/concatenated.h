// SPDX-License-Identifier: Apache-2.0
// HKT as PyTorch alone can do it, for tests and benchmarks to compare with.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <vector>

namespace hkt::testing {

// SDPA on concatenated features, with coarse rows repeated. Values are padded to the width of the features, which SDPA's fast
// path requires.
inline at::Tensor concatenated(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               bool causal, const std::optional<at::Tensor>& mask = {}) {
  std::vector<at::Tensor> queries, keys;
  for (size_t level = 0; level < q.size(); ++level) {
    const auto spread = [&](const at::Tensor& rows) {
      return level == 0 ? rows : rows.repeat_interleave(int64_t{1} << level, 2).narrow(2, 0, v.size(2));
    };
    const auto weight = weights.select(1, static_cast<int64_t>(level)).view({1, -1, 1, 1});
    queries.push_back(spread((q[level] * weight).to(v.scalar_type())));
    keys.push_back(spread(k[level]));
  }
  const auto width = v.size(3);
  const auto values = at::constant_pad_nd(v, {0, width * static_cast<int64_t>(q.size() - 1)});
  return at::scaled_dot_product_attention(at::cat(queries, 3), at::cat(keys, 3), values, mask, 0, causal,
                                          1 / std::sqrt(static_cast<double>(width)))
      .narrow(3, 0, width);
}

}  // namespace hkt::testing
