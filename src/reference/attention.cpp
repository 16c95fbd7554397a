// SPDX-License-Identifier: Apache-2.0
// The definition of HKT attention and downsampling, in the order of the formulas.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hkt/reference.h"

namespace hkt::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The keys or values that each of `heads` heads of queries reads.
at::Tensor for_heads(const at::Tensor& keys, int64_t heads) { return keys.repeat_interleave(heads / keys.size(1), 1); }

// The coarse rows of the given positions, of a level whose first row is that of position `start`.
at::Tensor rows_of(const at::Tensor& level_rows, std::size_t level, const at::Tensor& position, int64_t start) {
  const auto shift = static_cast<int64_t>(level);
  return level_rows.index_select(2, position.bitwise_right_shift(shift) - (start >> level));
}

double scale_or_default(std::optional<double> scale, at::TensorList q) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q[0].size(3))));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, bool causal,
                                             const std::optional<at::Tensor>& lengths, std::optional<double> scale,
                                             int64_t start) {
  const auto dtype = weights.scalar_type();
  const int64_t heads = q[0].size(1), queries = q[0].size(2), length = v.size(2);
  const double factor = scale_or_default(scale, q);
  const auto integers = v.options().dtype(at::kLong);
  const auto query_position = at::arange(start, start + queries, integers);
  const auto key_position = at::arange(length, integers);

  auto scores = at::zeros({v.size(0), heads, queries, length}, weights.options());
  for (std::size_t level = 0; level < q.size(); ++level) {
    const auto keys = for_heads(k[level], heads).to(dtype);
    const auto level_scores = at::matmul(q[level].to(dtype), keys.transpose(2, 3)) * factor;
    const auto lambda = weights.select(1, static_cast<int64_t>(level)).view({1, -1, 1, 1});
    const auto by_query = rows_of(level_scores, level, query_position, start);
    scores = scores + lambda * rows_of(by_query.transpose(2, 3), level, key_position, 0).transpose(2, 3);
  }

  const auto row = query_position.view({1, 1, queries, 1});
  const auto column = key_position.view({1, 1, 1, length});
  const auto valid = lengths ? lengths->view({-1, 1, 1, 1}) : at::full({1, 1, 1, 1}, length, integers);
  const auto row_is_valid = row < valid;
  auto allowed = row_is_valid & (column < valid);
  if (causal) allowed = allowed & (column <= row);

  // Padding rows keep their finite scores in the softmax and are zeroed after it, so that there is no NaN, in gradients too.
  scores = scores.masked_fill(row_is_valid & ~allowed, -infinity);
  const auto probabilities = at::softmax(scores, 3).masked_fill(~allowed, 0);
  const auto lse = at::logsumexp(scores, 3).masked_fill(~row_is_valid.squeeze(3), -infinity);
  return {at::matmul(probabilities, for_heads(v, heads).to(dtype)).to(v.scalar_type()), lse};
}

std::tuple<at::Tensor, at::Tensor> attention_extend(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                    const at::Tensor& weights, const at::Tensor& ends,
                                                    std::optional<double> scale) {
  const int64_t queries = q[0].size(2);
  auto out = at::zeros({v.size(0), q[0].size(1), queries, v.size(3)}, v.options());
  auto lse = at::full({v.size(0), q[0].size(1), queries}, -infinity, weights.options());
  for (int64_t sequence = 0; sequence < v.size(0); ++sequence) {
    const int64_t end = ends[sequence].item<int64_t>(), first = end - queries, start = std::max<int64_t>(first, 0);
    if (start >= end) continue;
    std::vector<at::Tensor> window_q, window_k;
    for (std::size_t level = 0; level < q.size(); ++level) {
      const int64_t rows = ((end - 1) >> level) + 1;
      window_q.push_back(
          q[level].narrow(0, sequence, 1).narrow(2, (start >> level) - (first >> level), rows - (start >> level)));
      window_k.push_back(k[level].narrow(0, sequence, 1).narrow(2, 0, rows));
    }
    const auto [window_out, window_lse] =
        attention(window_q, window_k, v.narrow(0, sequence, 1).narrow(2, 0, end), weights, true, {}, scale, start);
    out.narrow(0, sequence, 1).narrow(2, start - first, end - start).copy_(window_out);
    lse.narrow(0, sequence, 1).narrow(2, start - first, end - start).copy_(window_lse);
  }
  return {out, lse};
}

std::tuple<at::Tensor, at::Tensor> attention_concatenated(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                          const at::Tensor& weights, bool causal,
                                                          const std::optional<at::Tensor>& lengths,
                                                          std::optional<double> scale, int64_t start) {
  const int64_t heads = q[0].size(1);
  const auto integers = v.options().dtype(at::kLong);
  const auto query_position = at::arange(start, start + q[0].size(2), integers);
  const auto key_position = at::arange(v.size(2), integers);
  std::vector<at::Tensor> q_features, k_features;
  for (std::size_t level = 0; level < q.size(); ++level) {
    const auto q_level = rows_of(q[level], level, query_position, start).to(weights.scalar_type());
    q_features.push_back(q_level * weights.slice(1, level, level + 1).unsqueeze(0).unsqueeze(3));
    k_features.push_back(for_heads(rows_of(k[level], level, key_position, 0), heads).to(weights.scalar_type()));
  }
  const auto queries = at::cat(q_features, 3);
  const auto keys = at::cat(k_features, 3);
  const double factor = scale_or_default(scale, q);

  // [B, n, T]: which keys each row attends to. Padding rows attend to everything, and their results are masked at the end.
  auto mask = at::ones({v.size(0), query_position.size(0), v.size(2)}, integers.dtype(at::kBool));
  auto padding = at::zeros({v.size(0), query_position.size(0)}, mask.options());
  if (causal) mask = mask.logical_and(key_position.unsqueeze(0).le(query_position.unsqueeze(1)));
  if (lengths) {
    padding = query_position.unsqueeze(0).ge(lengths->unsqueeze(1));
    const auto hidden = key_position.unsqueeze(0).ge(lengths->unsqueeze(1));
    mask = mask.logical_and(hidden.logical_not().unsqueeze(1)).logical_or(padding.unsqueeze(2));
  }
  mask = mask.unsqueeze(1);
  padding = padding.unsqueeze(1);

  const auto values = for_heads(v, heads).to(weights.scalar_type());
  const auto out = at::scaled_dot_product_attention(queries, keys, values, mask, 0, false, factor);
  const auto scores = queries.mul(factor).matmul(keys.transpose(2, 3));
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
