// SPDX-License-Identifier: Apache-2.0
// The scores of one head, level by level.
#include <ATen/ATen.h>

#include <cmath>

#include "hkt/theory.h"

namespace hkt::theory {

HeadScores head_scores(const std::vector<at::Tensor>& q, const std::vector<at::Tensor>& k, const at::Tensor& weights,
                       bool causal) {
  HeadScores head;
  head.causal = causal;
  head.length = q.front().size(0);
  const double scale = 1 / std::sqrt(static_cast<double>(q.front().size(1)));
  for (size_t level = 0; level < q.size(); ++level) {
    const auto left = q[level].detach().to(at::kCPU, at::kDouble), right = k[level].detach().to(at::kCPU, at::kDouble);
    head.levels.push_back(at::mm(left, right.t()) * scale);
    head.weights.push_back(weights[static_cast<int64_t>(level)].item<double>());
  }
  return head;
}

at::Tensor spread(const at::Tensor& scores, std::int64_t level, std::int64_t length) {
  const auto index = at::arange(length, at::kLong).bitwise_right_shift(level);
  return scores.index_select(0, index).index_select(1, index);
}

at::Tensor combined(const HeadScores& head, std::int64_t kept) {
  double total = 0;
  for (int64_t level = 0; level < kept; ++level) total += head.weights[level];
  auto sum = at::zeros({head.length, head.length}, at::kDouble);
  if (total <= 0) return sum;
  for (int64_t level = 0; level < kept; ++level) {
    if (head.weights[level] == 0) continue;
    sum.add_(spread(head.levels[level], level, head.length), head.weights[level] / total);
  }
  return sum;
}

at::Tensor level_shares(const HeadScores& head) {
  auto visible = at::ones({head.length, head.length}, at::kDouble);
  if (head.causal) visible = visible.tril();
  const auto keys = visible.sum(1, true);
  // Each row without its mean over the visible keys.
  const auto centred = [&](const at::Tensor& scores) {
    return (scores - (scores * visible).sum(1, true) / keys) * visible;
  };
  std::vector<at::Tensor> parts;
  auto sum = at::zeros_like(visible);
  for (size_t level = 0; level < head.levels.size(); ++level) {
    parts.push_back(
        centred(head.weights[level] * spread(head.levels[level], static_cast<int64_t>(level), head.length)));
    sum.add_(parts.back());
  }
  const auto variance = sum.square().sum(1);
  std::vector<at::Tensor> shares;
  for (const auto& part : parts) shares.push_back(at::where(variance > 0, (part * sum).sum(1) / variance, 0.0));
  return at::stack(shares, 1);
}

}  // namespace hkt::theory
