// SPDX-License-Identifier: Apache-2.0
// Statistics with Boost.Math's distributions.
#include "experiments/comparison.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hkt::experiments {
namespace {

// second − first.
std::vector<double> paired_differences(std::span<const double> first, std::span<const double> second) {
  if (first.size() != second.size())
    throw std::invalid_argument("a paired test needs the same number of values on both sides.");
  std::vector<double> differences;
  for (std::size_t i = 0; i < first.size(); ++i) differences.push_back(second[i] - first[i]);
  return differences;
}

// By the t-distribution.
Interval around(double center, double standard_error, double degrees_of_freedom, double confidence) {
  const boost::math::students_t distribution(degrees_of_freedom);
  const double t = boost::math::quantile(boost::math::complement(distribution, (1 - confidence) / 2));
  return {center - t * standard_error, center + t * standard_error};
}

}  // namespace

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

std::optional<double> paired_t_test(std::span<const double> first, std::span<const double> second) {
  const auto differences = paired_differences(first, second);
  const auto [mean, deviation] = spread(differences);
  if (differences.size() < 2 || deviation == 0) return {};
  const double t = std::abs(mean) / (deviation / std::sqrt(static_cast<double>(differences.size())));
  const boost::math::students_t distribution(static_cast<double>(differences.size()) - 1);
  return 2 * boost::math::cdf(boost::math::complement(distribution, t));
}

std::optional<Interval> paired_interval(std::span<const double> first, std::span<const double> second,
                                        double confidence) {
  const auto differences = paired_differences(first, second);
  const auto [mean, deviation] = spread(differences);
  if (differences.size() < 2 || deviation == 0) return {};
  const auto count = static_cast<double>(differences.size());
  return around(mean, deviation / std::sqrt(count), count - 1, confidence);
}

std::optional<Interval> welch_interval(std::span<const double> first, std::span<const double> second,
                                       double confidence) {
  if (first.size() < 2 || second.size() < 2) return {};
  const auto [first_mean, first_deviation] = spread(first);
  const auto [second_mean, second_deviation] = spread(second);
  const auto first_count = static_cast<double>(first.size()), second_count = static_cast<double>(second.size());
  // The variance of each mean, and the degrees of freedom of their sum.
  const double a = first_deviation * first_deviation / first_count;
  const double b = second_deviation * second_deviation / second_count;
  if (a + b == 0) return {};
  const double freedom = (a + b) * (a + b) / (a * a / (first_count - 1) + b * b / (second_count - 1));
  return around(second_mean - first_mean, std::sqrt(a + b), freedom, confidence);
}

std::optional<Interval> prediction_interval(std::span<const double> values, double confidence) {
  if (values.size() < 2) return {};
  const auto count = static_cast<double>(values.size());
  const auto [mean, deviation] = spread(values);
  return around(mean, deviation * std::sqrt(1 + 1 / count), count - 1, confidence);
}

Interval resampled_interval(std::span<const double> values, double confidence) {
  if (values.empty()) throw std::invalid_argument("an interval needs at least one value.");
  constexpr std::size_t samples = 2000;
  std::mt19937_64 generator;  // NOLINT: the same samples every time
  std::vector<double> means;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[generator() % values.size()];
    means.push_back(sum / static_cast<double>(values.size()));
  }
  std::sort(means.begin(), means.end());
  const auto at_share = [&](double share) {
    return means[static_cast<std::size_t>(std::lround(share * static_cast<double>(samples - 1)))];
  };
  return {at_share((1 - confidence) / 2), at_share((1 + confidence) / 2)};
}

std::vector<std::optional<double>> holm(std::span<const std::optional<double>> values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(values[a].value_or(1), a) < std::pair(values[b].value_or(1), b);
  });
  std::vector<std::optional<double>> corrected(values.size());
  double largest = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto p = values[order[rank]].value_or(1) * static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, p));
    corrected[order[rank]] = largest;
  }
  return corrected;
}

std::string verdict(std::size_t seeds, const std::optional<Interval>& interval) {
  if (seeds < 2) return "one seed";
  if (!interval || interval->contains(0)) return "not decided";
  return interval->high < 0 ? "lower" : "higher";
}

double mcnemar(std::int64_t only_first, std::int64_t only_second) {
  const std::int64_t all = only_first + only_second;
  if (all == 0) return 1;
  const boost::math::binomial distribution(static_cast<double>(all), 0.5);
  return std::min(1.0, 2 * boost::math::cdf(distribution, static_cast<double>(std::min(only_first, only_second))));
}

}  // namespace hkt::experiments
