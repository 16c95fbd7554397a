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
constexpr int path_steps = 8;  // between the points of the tilted path

// Which keys a query may not attend to; rows are queries.
at::Tensor hidden_keys(const HeadScores& head) {
  const auto all = at::ones({head.length, head.length}, at::kBool);
  return head.causal ? all.triu(1) : all.logical_not();
}

// max − min over the keys a row may attend to.
at::Tensor range_of(const at::Tensor& values, const at::Tensor& hidden) {
  return values.masked_fill(hidden, -infinity).amax(1) - values.masked_fill(hidden, infinity).amin(1);
}

at::Tensor log_softmax_of(const at::Tensor& scores, const at::Tensor& hidden) {
  return scores.masked_fill(hidden, -infinity).log_softmax(1);
}

at::Tensor divergence(const at::Tensor& log_p, const at::Tensor& log_q, const at::Tensor& hidden) {
  return (log_p.exp() * (log_p - log_q).masked_fill(hidden, 0)).sum(1).clamp_min(0);
}

// Σ over the first `kept` levels with their own weights.
at::Tensor plain_sum(const HeadScores& head, int64_t kept) {
  auto sum = at::zeros({head.length, head.length}, at::kDouble);
  for (int64_t level = 0; level < kept; ++level)
    sum.add_(spread(head.levels[level], level, head.length), head.weights[level]);
  return sum;
}

// The largest variance of δ along p_s ∝ p e^{−sδ}, per row: at the points of a grid, and a bound for all points between them.
struct PathVariance {
  at::Tensor on_grid, anywhere;
};

// |d log Var / ds| = |κ₃| / Var ≤ range(δ), and no point is further than half a step from the grid; Popoviciu's inequality bounds
// any variance by range²/4.
PathVariance variance_along_path(const at::Tensor& log_p, const at::Tensor& delta, const at::Tensor& range) {
  PathVariance variance;
  variance.on_grid = at::zeros({log_p.size(0)}, at::kDouble);
  for (int step = 0; step <= path_steps; ++step) {
    const auto p = (log_p - delta * (static_cast<double>(step) / path_steps)).softmax(1);
    const auto mean = (p * delta).sum(1, true);
    variance.on_grid = at::maximum(variance.on_grid, (p * (delta - mean).square()).sum(1));
  }
  const auto between = variance.on_grid * (range / (2 * path_steps)).exp();
  variance.anywhere = at::minimum(between, range.square() / 4);
  return variance;
}

// The parts of the expansion of KL in the cumulants of δ under p, per row.
struct Parts {
  at::Tensor gaussian, non_gaussian;
};

Parts parts_of(const at::Tensor& p, const at::Tensor& delta) {
  const auto expectation = [&](const at::Tensor& values) { return (p * values).sum(1); };
  const auto centred = delta - (p * delta).sum(1, true);
  const auto square = centred.square();
  const auto variance = expectation(square);
  const auto third = expectation(square * centred);
  const auto fourth = expectation(square.square()) - 3 * variance.square();
  return {variance / 2, -third / 6 + fourth / 24};
}

// The remainder is an integral over κ₅ along the path, |κ₅| ≤ 3.5 range³ Var; and the whole is between 0 and its own bound.
at::Tensor bound_of_remainder(const Parts& parts, const at::Tensor& variance, const at::Tensor& range) {
  const auto first = parts.gaussian + parts.non_gaussian;
  const auto trivial = at::maximum(first.abs(), (variance / 2 - first).abs());
  return at::minimum(range.pow(3) * variance * (3.5 / 120), trivial);
}

double mean_of(const at::Tensor& values) { return values.mean().item<double>(); }
double largest_of(const at::Tensor& values) { return values.max().item<double>(); }

void add_renormalised(DepthError& error, const HeadScores& head, const at::Tensor& full, const at::Tensor& hidden) {
  const auto scores = combined(head, error.kept);
  const auto delta = (full - scores).masked_fill(hidden, 0);
  const auto log_p = log_softmax_of(full, hidden);
  const auto p = log_p.exp();
  const auto kl = divergence(log_p, log_softmax_of(scores, hidden), hidden);
  const auto from_moments = (p * delta).sum(1) + (log_p - delta).logsumexp(1);
  const auto range = range_of(delta, hidden);
  const auto variance = variance_along_path(log_p, delta, range);
  const auto parts = parts_of(p, delta);
  const auto remainder = kl - parts.gaussian - parts.non_gaussian;
  const auto remainder_bound = bound_of_remainder(parts, variance.anywhere, range);
  const auto hoeffding = range.square() / 8;
  const auto tilted = variance.anywhere / 2;

  error.kl = mean_of(kl);
  error.gaussian = mean_of(parts.gaussian);
  error.non_gaussian = mean_of(parts.non_gaussian.abs());
  error.remainder = mean_of(remainder.abs());
  error.remainder_bound = mean_of(remainder_bound);
  error.tilted = mean_of(variance.on_grid / 2);
  error.tilted_bound = mean_of(tilted);
  error.hoeffding = mean_of(hoeffding);
  const double size = 1 + largest_of(delta.abs());
  error.identity_error = largest_of((kl - from_moments).abs()) / size;
  error.worst_excess =
      std::max(largest_of(kl - at::minimum(hoeffding, tilted)), largest_of(remainder.abs() - remainder_bound)) / size;
}

// Without renormalising nothing depends on how a factor is divided between λ and the scores.
void add_plain(DepthError& error, const HeadScores& head, const at::Tensor& full, const at::Tensor& hidden,
               const std::vector<at::Tensor>& reaches) {
  auto reach = at::zeros({head.length}, at::kDouble);
  for (size_t level = static_cast<size_t>(error.kept); level < reaches.size(); ++level) reach += reaches[level];
  const auto kl = divergence(log_softmax_of(full, hidden), log_softmax_of(plain_sum(head, error.kept), hidden), hidden);
  const auto bound = reach.square() / 8;
  error.plain_kl = mean_of(kl);
  error.plain_hoeffding = mean_of(bound);
  error.worst_excess = std::max(error.worst_excess, largest_of(kl - bound) / (1 + largest_of(reach)));
}

}  // namespace

Depth depth_error(const HeadScores& head) {
  Depth depth;
  const auto hidden = hidden_keys(head);
  const auto levels = static_cast<int64_t>(head.levels.size());
  std::vector<at::Tensor> reaches;  // of each row
  for (int64_t level = 0; level < levels; ++level) {
    reaches.push_back(range_of(spread(head.levels[level], level, head.length), hidden) * head.weights[level]);
    depth.reach.push_back(largest_of(reaches.back()));
  }
  const auto full = combined(head, levels);
  for (int64_t kept = 1; kept <= levels; ++kept) {
    DepthError error;
    error.kept = kept;
    add_renormalised(error, head, full, hidden);
    add_plain(error, head, full, hidden, reaches);
    depth.errors.push_back(error);
  }
  return depth;
}

// A single level has no decay to fit, nor has one without any reach.
Decay fit_decay(const std::vector<double>& reach) {
  Decay decay;
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t l = 0; l < reach.size(); ++l) {
    if (reach[l] <= 0) continue;
    const auto level = static_cast<double>(l);
    const double value = std::log(reach[l]);
    count += 1, x += level, y += value, xx += level * level, xy += level * value;
  }
  const double spread_of_levels = count * xx - x * x;
  if (spread_of_levels > 0) decay.rho = std::exp((count * xy - x * y) / spread_of_levels);
  for (size_t l = 0; l < reach.size(); ++l)
    decay.constant = std::max(decay.constant, reach[l] * std::pow(decay.rho, -static_cast<double>(l)));
  return decay;
}

}  // namespace hkt::theory
