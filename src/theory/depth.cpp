// SPDX-License-Identifier: Apache-2.0
// The error of keeping only the first levels: measured, decomposed and bounded.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Which keys a query may attend to; rows are queries.
at::Tensor allowed_keys(const HeadScores& head) {
  const auto all = at::ones({head.length, head.length}, at::kBool);
  return head.causal ? all.tril() : all;
}

// max − min over the keys a row may attend to.
at::Tensor range_of(const at::Tensor& values, const at::Tensor& allowed) {
  const auto hidden = allowed.logical_not();
  return values.masked_fill(hidden, -infinity).amax(1) - values.masked_fill(hidden, infinity).amin(1);
}

// λ_l ≤ c ρ^l: ρ by least squares on log λ, then the smallest c that makes it true. A single weight has no decay to fit.
void fit_decay(const std::vector<double>& weights, Depth& depth) {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t l = 0; l < weights.size(); ++l) {
    if (weights[l] <= 0) continue;
    const auto level = static_cast<double>(l);
    const double log_weight = std::log(weights[l]);
    count += 1, x += level, y += log_weight, xx += level * level, xy += level * log_weight;
  }
  const double spread_of_levels = count * xx - x * x;
  depth.decay = spread_of_levels > 0 ? std::exp((count * xy - x * y) / spread_of_levels) : 1;
  for (size_t l = 0; l < weights.size(); ++l)
    depth.constant = std::max(depth.constant, weights[l] * std::pow(depth.decay, -static_cast<double>(l)));
}

DepthError error_of(const HeadScores& head, const at::Tensor& full, const at::Tensor& allowed, int64_t kept,
                    const Depth& depth) {
  const auto hidden = allowed.logical_not();
  const auto scores = combined(head, kept);
  const auto delta = (full - scores).masked_fill(hidden, 0);
  const auto log_p = full.masked_fill(hidden, -infinity).log_softmax(1);
  const auto log_kept = scores.masked_fill(hidden, -infinity).log_softmax(1);
  const auto p = log_p.exp();
  const auto expectation = [&](const at::Tensor& values) { return (p * values).sum(1); };
  const auto kl = expectation((log_p - log_kept).masked_fill(hidden, 0)).clamp_min(0);

  const auto mean = expectation(delta);
  const auto centred = (delta - mean.unsqueeze(1)).masked_fill(hidden, 0);
  const auto square = centred.square();
  const auto variance = expectation(square);
  const auto third = expectation(square * centred);
  const auto fourth = expectation(square.square()) - 3 * variance.square();
  const auto from_moments = mean + (log_p - delta).masked_fill(hidden, -infinity).logsumexp(1);
  const auto range = range_of(delta, allowed);

  double left_out = 1;
  for (int64_t l = 0; l < kept; ++l) left_out -= head.weights[l];
  left_out = kept == static_cast<int64_t>(head.levels.size()) ? 0 : std::max(0.0, left_out);

  DepthError error;
  error.kept = kept;
  error.kl = kl.mean().item<double>();
  error.gaussian = (variance / 2).mean().item<double>();
  error.non_gaussian = (-third / 6 + fourth / 24).mean().item<double>();
  error.remainder = error.kl - error.gaussian - error.non_gaussian;
  const auto hoeffding = range.square() / 8;
  error.hoeffding = hoeffding.mean().item<double>();
  error.weight_bound = depth.range * depth.range * left_out * left_out / 2;
  const double reach = depth.range * depth.constant / (1 - depth.decay);
  error.geometric =
      depth.decay < 1 ? reach * reach * std::pow(depth.decay, 2 * static_cast<double>(kept)) / 2 : infinity;
  const double size = 1 + delta.abs().max().item<double>();
  error.identity_error = (kl - from_moments).abs().max().item<double>() / size;
  const double constant_bound = std::min(error.weight_bound, error.geometric);
  error.worst_excess = (kl - hoeffding.clamp_max(constant_bound)).max().item<double>() / size;
  return error;
}

}  // namespace

Depth depth_error(const HeadScores& head) {
  Depth depth;
  const auto allowed = allowed_keys(head);
  const auto levels = static_cast<int64_t>(head.levels.size());
  for (int64_t level = 0; level < levels; ++level) {
    const auto ranges = range_of(spread(head.levels[level], level, head.length), allowed);
    depth.range = std::max(depth.range, ranges.max().item<double>());
  }
  fit_decay(head.weights, depth);
  const auto full = combined(head, levels);
  for (int64_t kept = 1; kept <= levels; ++kept) depth.errors.push_back(error_of(head, full, allowed, kept, depth));
  return depth;
}

}  // namespace hkt::theory
