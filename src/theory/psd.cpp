// SPDX-License-Identifier: Apache-2.0
// The spectrum of the kernel B, from a matrix of twice the head's width instead of the model's width.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

constexpr double rounding = 1e-10;  // relative to the largest eigenvalue: a zero in float64

at::Tensor eigenvalues_of(const at::Tensor& symmetric) { return at::linalg_eigvalsh(symmetric); }

at::Tensor symmetric_part(const at::Tensor& matrix) { return (matrix + matrix.t()) / 2; }

}  // namespace

// B = F J Fᵀ with F = [W_Q W_K] and J = [[0, I], [I, 0]] / (2√dk). With F = Q R the eigenvalues of B other than zero are
// those of R J Rᵀ, which is small.
Spectrum kernel_spectrum(const at::Tensor& query, const at::Tensor& key) {
  const auto q = query.detach().to(at::kCPU, at::kDouble), k = key.detach().to(at::kCPU, at::kDouble);
  const int64_t head_width = q.size(0);
  const auto factors = at::cat({q, k}).t();
  const auto r = std::get<1>(at::linalg_qr(factors, "r"));
  const auto swapped = r.roll(head_width, 1);  // R with the columns of W_Q and W_K exchanged
  const auto small = symmetric_part(at::mm(swapped, r.t())) / (2 * std::sqrt(static_cast<double>(head_width)));
  const auto values = eigenvalues_of(small).contiguous();

  Spectrum spectrum;
  const double* begin = values.const_data_ptr<double>();
  spectrum.eigenvalues.assign(begin, begin + values.numel());
  double negative = 0, all = 0;
  for (const double value : spectrum.eigenvalues) {
    all += value * value;
    if (value < 0) negative += value * value;
  }
  const double largest = spectrum.eigenvalues.back(), smallest = spectrum.eigenvalues.front();
  spectrum.negative_energy = all > 0 ? negative / all : 0;
  spectrum.smallest_over_largest = largest > 0 ? smallest / largest : 0;
  spectrum.is_semidefinite = smallest >= -rounding * std::max(std::abs(largest), std::abs(smallest));
  return spectrum;
}

Definiteness definiteness(const at::Tensor& scores) {
  const auto values = eigenvalues_of(symmetric_part(scores));
  const double largest = values.abs().max().item<double>();
  if (largest == 0) return {};
  const auto energy = values.square();
  return {values[0].item<double>() / largest,
          energy.masked_select(values < 0).sum().item<double>() / energy.sum().item<double>()};
}

}  // namespace hkt::theory
