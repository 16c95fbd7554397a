// SPDX-License-Identifier: Apache-2.0
// Mardia's tests of multivariate normality.
#include <ATen/ATen.h>

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

constexpr int64_t fewest_samples = 8;
constexpr double rank_tolerance = 1e-9;  // of the largest singular value

// The skewness of 32 to 256 Gaussian samples has 1.1 to 1.3 times the variance of the χ² it tends to (simulated for 1 to 16
// dimensions; less than 1 only for as many as half the samples). tests/theory.cpp simulates the test's size.
constexpr double variance_ratio = 1.25;

double upper_tail(double degrees, double statistic) {
  return boost::math::cdf(boost::math::complement(boost::math::chi_squared(degrees), statistic));
}

// b₁ over its mean for n Gaussian samples is about χ²_f / f, f = p(p + 1)(p + 2)/6, with the variance above.
double skewness_p(const Mardia& test, double p) {
  const double degrees = p * (p + 1) * (p + 2) / 6 / variance_ratio;
  return upper_tail(degrees, degrees * test.skewness / test.gaussian_skewness);
}

double kurtosis_p(const Mardia& test, double n, double p) {
  const double variance =
      8 * p * (p + 2) * (n - 3) * (n - p - 1) * (n - p + 1) / ((n + 1) * (n + 1) * (n + 3) * (n + 5));
  const double z = (test.kurtosis - test.gaussian_kurtosis) / std::sqrt(variance);
  return 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), std::abs(z)));
}

}  // namespace

Mardia mardia(const at::Tensor& rows, std::int64_t most_dimensions) {
  Mardia result;
  result.samples = rows.size(0);
  if (result.samples < fewest_samples) {
    result.trouble = "there are " + std::to_string(result.samples) + " samples; the test needs at least " +
                     std::to_string(fewest_samples);
    return result;
  }
  const auto values = rows.detach().to(at::kCPU, at::kDouble);
  const auto [u, s, vh] = at::linalg_svd(values - values.mean(0, true), false);
  const double largest = s[0].item<double>();
  const int64_t rank = largest > 0 ? s.gt(rank_tolerance * largest).sum().item<int64_t>() : 0;
  // The moments of the test need more samples than dimensions.
  result.dimensions = std::min({most_dimensions, rank, result.samples - 4});
  if (result.dimensions < 1) {
    result.trouble = "all samples are equal";
    return result;
  }
  const auto n = static_cast<double>(result.samples), p = static_cast<double>(result.dimensions);
  const auto white = u.narrow(1, 0, result.dimensions) * std::sqrt(n);
  const auto products = at::mm(white, white.t());
  result.skewness = std::max(0.0, products.pow(3).mean().item<double>());
  result.kurtosis = products.diagonal().square().mean().item<double>();
  result.gaussian_skewness = p * (p + 2) * ((n + 1) * (p + 1) - 6) / ((n + 1) * (n + 3));
  result.gaussian_kurtosis = p * (p + 2) * (n - 1) / (n + 1);
  result.skewness_p = skewness_p(result, p);
  result.kurtosis_p = kurtosis_p(result, n, p);

  const auto first = std::get<0>(white.select(1, 0).sort()).contiguous();
  result.first_component.assign(first.const_data_ptr<double>(), first.const_data_ptr<double>() + first.numel());
  return result;
}

double combined_p(const std::vector<double>& p) {
  if (p.empty()) return 1;
  double statistic = 0;
  for (const double value : p) statistic -= 2 * std::log(std::max(value, std::numeric_limits<double>::min()));
  return upper_tail(2 * static_cast<double>(p.size()), statistic);
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> corrected(p.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(p.size() - rank) * p[order[rank]]));
    corrected[order[rank]] = largest;
  }
  return corrected;
}

}  // namespace hkt::theory
