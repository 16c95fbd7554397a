// SPDX-License-Identifier: Apache-2.0
// One head's measurements as JSON.
#include "head_statistics.h"

#include <ATen/ATen.h>

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

// JSON has no value for what was never measured but null.
json mean_or_null(const Summary& summary) { return summary.count > 0 ? json(summary.mean()) : json(); }
json largest_or_null(const Summary& summary) { return summary.count > 0 ? json(summary.largest) : json(); }

}  // namespace

std::vector<double> mean_shares(const HeadScores& head) {
  const auto shares = level_shares(head);
  const auto choosing = shares.ne(0).any(1);
  const auto rows = choosing.sum().item<double>();
  if (rows == 0) return {};
  const auto mean = (shares.sum(0) / rows).contiguous();
  return {mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + mean.numel()};
}

void HeadStatistics::add(const HeadScores& head) {
  const auto all = combined(head, static_cast<std::int64_t>(head.levels.size()));
  const auto definite = definiteness(all);
  smallest_eigenvalue_.add(definite.smallest_share);
  negative_energy_.add(definite.negative_energy);
  rank_.add(static_cast<double>(centred_block_rank(all)));
  if (directionality(all) > 0) curl_.add(antisymmetric_parts(all).curl_share);
  const auto shares = mean_shares(head);
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    auto& own = levels_[l];
    own.weight = head.weights[l];
    if (!shares.empty()) own.share.add(shares[l]);
    const double directional = directionality(head.levels[l]);
    own.directionality.add(directional);
    if (directional > 0) own.curl.add(antisymmetric_parts(head.levels[l]).curl_share);
  }
  const auto independent = independence(head);
  independent_matrices_ = std::min(independent_matrices_, independent.matrices);
  independence_.add(independent.smallest_eigenvalue);
  add_depth(head);
}

void HeadStatistics::add_depth(const HeadScores& head) {
  const auto depth = depth_error(head);
  for (std::size_t l = 0; l < depths_.size(); ++l) {
    levels_[l].reach.add(depth.reach[l]);
    const auto& error = depth.errors[l];
    auto& own = depths_[l];
    own.kl.add(error.kl);
    own.gaussian.add(error.gaussian);
    own.non_gaussian.add(error.non_gaussian);
    own.remainder.add(error.remainder);
    own.remainder_bound.add(error.remainder_bound);
    own.tilted.add(error.tilted);
    own.tilted_bound.add(error.tilted_bound);
    own.hoeffding.add(error.hoeffding);
    own.plain_kl.add(error.plain_kl);
    own.plain_hoeffding.add(error.plain_hoeffding);
    identity_error_.add(error.identity_error);
    excess_.add(error.worst_excess);
  }
}

json HeadStatistics::levels_json() const {
  json levels = json::array();
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    const auto& own = levels_[l];
    levels.push_back({{"level", l},
                      {"weight", own.weight},
                      {"share", mean_or_null(own.share)},
                      {"reach", own.reach.largest},
                      {"directionality", own.directionality.mean()},
                      {"curl_share", mean_or_null(own.curl)},
                      {"normality", own.normality.to_json(true)}});
  }
  return levels;
}

json HeadStatistics::depth_json() const {
  json depths = json::array();
  for (std::size_t l = 0; l < depths_.size(); ++l) {
    const auto& own = depths_[l];
    depths.push_back({{"kept", l + 1},
                      {"kl", own.kl.mean()},
                      {"gaussian", own.gaussian.mean()},
                      {"non_gaussian_size", own.non_gaussian.mean()},
                      {"remainder_size", own.remainder.mean()},
                      {"remainder_bound", own.remainder_bound.mean()},
                      {"tilted", own.tilted.mean()},
                      {"tilted_bound", own.tilted_bound.mean()},
                      {"hoeffding", own.hoeffding.mean()},
                      {"plain_kl", own.plain_kl.mean()},
                      {"plain_hoeffding", own.plain_hoeffding.mean()}});
  }
  return depths;
}

json HeadStatistics::to_json() const {
  std::vector<double> reach;
  for (const auto& level : levels_) reach.push_back(level.reach.largest);
  const auto decay = fit_decay(reach);
  return {{"scores_smallest_eigenvalue_share", smallest_eigenvalue_.smallest},
          {"scores_negative_energy", negative_energy_.mean()},
          {"commutation_error", largest_or_null(commutation_)},
          {"independence", {{"matrices", independent_matrices_}, {"smallest_eigenvalue", independence_.smallest}}},
          {"curl_share", mean_or_null(curl_)},
          {"centred_rank", largest_or_null(rank_)},
          {"levels", levels_json()},
          {"reach_decay", {{"rho", decay.rho}, {"constant", decay.constant}}},
          {"depth", depth_json()},
          {"depth_identity_error", identity_error_.largest},
          {"depth_worst_excess", excess_.largest}};
}

}  // namespace hkt::theory
