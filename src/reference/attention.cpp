// SPDX-License-Identifier: Apache-2.0
// The definition of HKT attention and downsampling, in the order of the formulas.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hkt/reference.h"

namespace hkt::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A level's scores [B, H, T_l, T_l], every entry repeated to a 2^l × 2^l block, cropped to [B, H, T, T].
at::Tensor upsample(const at::Tensor& scores, std::size_t level, int64_t length) {
  const int64_t block = int64_t{1} << level;
  const auto rows = scores.repeat_interleave(block, 2).narrow(2, 0, length);
  return rows.repeat_interleave(block, 3).narrow(3, 0, length);
}

double scale_or_default(std::optional<double> scale, at::TensorList q) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q[0].size(3))));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, bool causal,
                                             const std::optional<at::Tensor>& lengths, std::optional<double> scale) {
  const auto dtype = weights.scalar_type();
  const int64_t length = v.size(2);
  const double factor = scale_or_default(scale, q);

  auto scores = at::zeros({v.size(0), v.size(1), length, length}, weights.options());
  for (std::size_t level = 0; level < q.size(); ++level) {
    const auto level_scores = at::matmul(q[level].to(dtype), k[level].to(dtype).transpose(2, 3)) * factor;
    const auto lambda = weights.select(1, static_cast<int64_t>(level)).view({1, -1, 1, 1});
    scores = scores + lambda * upsample(level_scores, level, length);
  }

  const auto position = at::arange(length, v.options().dtype(at::kLong));
  const auto row = position.view({1, 1, length, 1});
  const auto column = position.view({1, 1, 1, length});
  const auto valid = lengths ? lengths->view({-1, 1, 1, 1}) : at::full({1, 1, 1, 1}, length, position.options());
  const auto row_is_valid = row < valid;
  auto allowed = row_is_valid & (column < valid);
  if (causal) allowed = allowed & (column <= row);

  // Padding rows keep their finite scores in the softmax and are zeroed after it, so that there is no NaN, in gradients too.
  scores = scores.masked_fill(row_is_valid & ~allowed, -infinity);
  const auto probabilities = at::softmax(scores, 3).masked_fill(~allowed, 0);
  const auto lse = at::logsumexp(scores.detach(), 3).masked_fill(~row_is_valid.squeeze(3), -infinity);
  return {at::matmul(probabilities, v.to(dtype)).to(v.scalar_type()), lse};
}

std::tuple<at::Tensor, at::Tensor> attention_concatenated(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                          const at::Tensor& weights, bool causal,
                                                          const std::optional<at::Tensor>& lengths,
                                                          std::optional<double> scale) {
  const auto position = at::arange(v.size(2), v.options().dtype(at::kLong));
  std::vector<at::Tensor> q_features, k_features;
  for (std::size_t level = 0; level < q.size(); ++level) {
    const auto source = position.bitwise_right_shift(static_cast<int64_t>(level));
    const auto q_level = q[level].index_select(2, source).to(weights.scalar_type());
    q_features.push_back(q_level * weights.slice(1, level, level + 1).unsqueeze(0).unsqueeze(3));
    k_features.push_back(k[level].index_select(2, source).to(weights.scalar_type()));
  }
  const auto queries = at::cat(q_features, 3);
  const auto keys = at::cat(k_features, 3);
  const double factor = scale_or_default(scale, q);

  // [B, T, T]: which keys each row attends to. Padding rows attend to everything, and their results are masked at the end.
  auto mask = at::ones({v.size(0), v.size(2), v.size(2)}, position.options().dtype(at::kBool));
  auto padding = at::zeros({v.size(0), v.size(2)}, mask.options());
  if (causal) mask = mask.tril();
  if (lengths) {
    padding = position.unsqueeze(0).ge(lengths->unsqueeze(1));
    mask = mask.logical_and(padding.logical_not().unsqueeze(1)).logical_or(padding.unsqueeze(2));
  }
  mask = mask.unsqueeze(1);
  padding = padding.unsqueeze(1);

  const auto values = v.to(weights.scalar_type());
  const auto out = at::scaled_dot_product_attention(queries, keys, values, mask, 0, false, factor);
  const auto scores = queries.detach().mul(factor).matmul(keys.detach().transpose(2, 3));
  const auto lse = scores.masked_fill(mask.logical_not(), -infinity).logsumexp(3);
  return {out.masked_fill(padding.unsqueeze(3), 0).to(v.scalar_type()), lse.masked_fill(padding, -infinity)};
}

at::Tensor downsample(const at::Tensor& x, const at::Tensor& weight) {
  const int64_t length = (x.size(1) + 1) / 2;
  auto y = at::zeros({x.size(0), length, x.size(2)}, x.options());
  for (int64_t tap = 0; tap < weight.size(0); ++tap) {
    const auto past = at::constant_pad_nd(x, {0, 0, tap, 0}).slice(1, 0, x.size(1), 2);  // past[m] = x[2m − tap]
    const auto filter = weight.select(0, tap);
    y = y + (filter.dim() == 2 ? at::matmul(past, filter) : past * filter);
  }
  return y;
}

}  // namespace hkt::reference
