// SPDX-License-Identifier: Apache-2.0
// Comparing models: means over seeds, and the two tests of the protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace hkt::experiments {

struct Spread {
  double mean = 0;
  double deviation = 0;  // sample standard deviation (n − 1); 0 for one value
};
Spread spread(std::span<const double> values);

// Two-sided p-value of the paired t-test; nullopt for fewer than two pairs, or if all differences are equal, where the test
// is undefined.
std::optional<double> paired_t_test(std::span<const double> first, std::span<const double> second);

// 95 % prediction interval for a further value from the same normal distribution; nullopt for fewer than two values.
std::optional<std::pair<double, double>> prediction_interval(std::span<const double> values);

// Two-sided p-value of McNemar's exact test, from how many sequences only the first and only the second model got right.
double mcnemar(std::int64_t only_first, std::int64_t only_second);

}  // namespace hkt::experiments
