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
  double deviation = 0;  // of the sample, with n − 1; 0 for one value
};
Spread spread(std::span<const double> values);

// Two-sided p of Student's t-test on the differences of pairs; nothing for fewer than two pairs, or where all
// differences are equal, of which the test has nothing to say.
std::optional<double> paired_t_test(std::span<const double> first, std::span<const double> second);

// Where a further value lies 19 times of 20, if all are drawn from one normal distribution; nothing for fewer than two.
std::optional<std::pair<double, double>> prediction_interval(std::span<const double> values);

// Two-sided p of McNemar's exact test: of the sequences that one model alone got right, how many were the first's.
double mcnemar(std::int64_t only_first, std::int64_t only_second);

}  // namespace hkt::experiments
