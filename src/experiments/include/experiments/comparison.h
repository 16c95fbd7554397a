// SPDX-License-Identifier: Apache-2.0
// Comparing models: means over seeds, intervals of their differences, and tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hkt::experiments {

struct Spread {
  double mean = 0;
  double deviation = 0;  // sample standard deviation (n − 1); 0 for one value
};
Spread spread(std::span<const double> values);

// Two-sided p-value of the paired t-test; nullopt for fewer than two pairs, or if all differences are equal, where the test
// is undefined.
std::optional<double> paired_t_test(std::span<const double> first, std::span<const double> second);

struct Interval {
  double low, high;

  bool contains(double value) const { return low <= value && value <= high; }
};

constexpr double usual_confidence = 0.95;

// Confidence interval of the mean of second − first by the t-distribution over pairs; nullopt where the paired t-test is
// undefined. With n comparisons, Bonferroni's correction is a confidence of 1 − 0.05 / n.
std::optional<Interval> paired_interval(std::span<const double> first, std::span<const double> second,
                                        double confidence = usual_confidence);

// Confidence interval of mean(second) − mean(first) for independent values of different variance, by Welch and
// Satterthwaite; nullopt for fewer than two values on a side, or if no side has any spread.
std::optional<Interval> welch_interval(std::span<const double> first, std::span<const double> second,
                                       double confidence = usual_confidence);

// Prediction interval for a further value from the same normal distribution; nullopt for fewer than two values.
std::optional<Interval> prediction_interval(std::span<const double> values, double confidence = usual_confidence);

// Confidence interval of the mean of values that were drawn independently, by the bootstrap: percentiles of the means of 2,000
// samples with replacement, the same ones each time. Not for an empty list.
Interval resampled_interval(std::span<const double> values, double confidence = usual_confidence);

// p-values corrected for their number by Holm's method, in their order: those below 0.05 reject, and the probability that any of them
// is wrong is at most 0.05. A test that is undefined rejects nothing and does not count.
std::vector<std::optional<double>> holm(std::span<const std::optional<double>> values);

// What the interval of a difference says: "lower", "higher", "not decided" if it contains zero, or "one seed".
std::string verdict(std::size_t seeds, const std::optional<Interval>& interval);

// Two-sided p-value of McNemar's exact test, from how many sequences only the first and only the second model got right.
double mcnemar(std::int64_t only_first, std::int64_t only_second);

}  // namespace hkt::experiments
