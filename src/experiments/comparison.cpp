// SPDX-License-Identifier: Apache-2.0
// Statistics with Boost.Math's distributions.
#include "experiments/comparison.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace hkt::experiments {

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

std::optional<double> paired_t_test(std::span<const double> first, std::span<const double> second) {
  if (first.size() != second.size())
    throw std::invalid_argument("a paired test needs the same number of values on both sides.");
  std::vector<double> differences;
  for (std::size_t i = 0; i < first.size(); ++i) differences.push_back(second[i] - first[i]);
  const auto [mean, deviation] = spread(differences);
  if (differences.size() < 2 || deviation == 0) return {};
  const double t = std::abs(mean) / (deviation / std::sqrt(static_cast<double>(differences.size())));
  const boost::math::students_t distribution(static_cast<double>(differences.size()) - 1);
  return 2 * boost::math::cdf(boost::math::complement(distribution, t));
}

std::optional<std::pair<double, double>> prediction_interval(std::span<const double> values) {
  if (values.size() < 2) return {};
  const auto count = static_cast<double>(values.size());
  constexpr double outside = 0.05;
  const double t = boost::math::quantile(boost::math::complement(boost::math::students_t(count - 1), outside / 2));
  const auto [mean, deviation] = spread(values);
  const double half = t * deviation * std::sqrt(1 + 1 / count);
  return std::pair{mean - half, mean + half};
}

double mcnemar(std::int64_t only_first, std::int64_t only_second) {
  const std::int64_t all = only_first + only_second;
  if (all == 0) return 1;
  const boost::math::binomial distribution(static_cast<double>(all), 0.5);
  return std::min(1.0, 2 * boost::math::cdf(distribution, static_cast<double>(std::min(only_first, only_second))));
}

}  // namespace hkt::experiments
