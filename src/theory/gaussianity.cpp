// SPDX-License-Identifier: Apache-2.0
// Mardia's tests of multivariate normality.
#include <ATen/ATen.h>

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

constexpr int64_t fewest_samples = 8;
constexpr double rank_tolerance = 1e-9;  // of the largest singular value

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
  result.gaussian_kurtosis = p * (p + 2) * (n - 1) / (n + 1);

  const boost::math::chi_squared chi_squared(p * (p + 1) * (p + 2) / 6);
  result.skewness_p = boost::math::cdf(boost::math::complement(chi_squared, n * result.skewness / 6));
  const double variance =
      8 * p * (p + 2) * (n - 3) * (n - p - 1) * (n - p + 1) / ((n + 1) * (n + 1) * (n + 3) * (n + 5));
  const double z = (result.kurtosis - result.gaussian_kurtosis) / std::sqrt(variance);
  result.kurtosis_p = 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), std::abs(z)));

  const auto first = std::get<0>(white.select(1, 0).sort()).contiguous();
  result.first_component.assign(first.const_data_ptr<double>(), first.const_data_ptr<double>() + first.numel());
  return result;
}

}  // namespace hkt::theory
