// SPDX-License-Identifier: Apache-2.0
// Performer: softmax attention estimated by positive random features.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "numbers.h"
#include "sparse.h"

namespace hkt::peers {
namespace {

constexpr double least = 1e-6;  // of a feature, so that no sum of them is zero

// ω x − |x|² / 2, [B, heads, T, count].
at::Tensor exponents(const at::Tensor& rows, const at::Tensor& features) {
  const auto x = rows * std::pow(static_cast<double>(rows.size(3)), -0.25);
  return at::matmul(x, features.to(x.scalar_type()).t()) - x.square().sum(3, true) / 2;
}

// An exponent is at most |ω|² / 2 = D / 2. What is subtracted must not depend on the keys, or early rows would see later ones.
double shift_of(std::int64_t width) {
  constexpr double safe = 60;  // e^60 times any number of keys is a float32
  return std::max(0.0, static_cast<double>(width) / 2 - safe);
}

std::vector<double> gaussians(std::int64_t count) {
  std::vector<double> numbers;
  for (std::uint64_t i = 0; std::ssize(numbers) < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform(i)));
    const double angle = 2 * std::numbers::pi * uniform(i + 1);
    numbers.push_back(radius * std::cos(angle));
    numbers.push_back(radius * std::sin(angle));
  }
  return numbers;
}

}  // namespace

// Gram and Schmidt, from the first row of a block to its last.
at::Tensor orthogonal_features(std::int64_t count, std::int64_t width) {
  const auto numbers = gaussians(count * width);
  auto rows = at::empty({count, width}, at::kDouble);
  std::copy_n(numbers.begin(), rows.numel(), rows.mutable_data_ptr<double>());
  for (std::int64_t i = 0; i < count; ++i) {
    auto row = rows[i];
    for (std::int64_t before = i - i % width; before < i; ++before) row.sub_(rows[before] * row.dot(rows[before]));
    row.div_(row.norm());
  }
  return rows.mul_(std::sqrt(static_cast<double>(width)));
}

at::Tensor performer(const Inputs& inputs, const at::Tensor& features) {
  if (inputs.q.size(2) == 0) return at::zeros_like(inputs.v);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::autocast_dispatch_keyset);  // bfloat16 is too coarse for exponents
  const auto type = inputs.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto of_queries = exponents(inputs.q.to(type), features);
  const auto q = (of_queries - of_queries.detach().amax({3}, true)).exp() + least;
  auto k = (exponents(inputs.k.to(type), features) - shift_of(inputs.q.size(3))).exp() + least;
  const auto v = inputs.v.to(type);
  if (inputs.lengths) k = k.masked_fill(valid_rows(*inputs.lengths, inputs.q.size(2)).logical_not(), 0);
  at::Tensor out;
  if (inputs.causal) {
    const auto weights = at::matmul(q, k.transpose(2, 3)).tril();
    const auto sums = weights.sum(3, true);
    out = at::matmul(weights, v) / (sums + sums.eq(0));
  } else {
    const auto sums = at::matmul(q, k.sum(2).unsqueeze(3));
    out = at::matmul(q, at::matmul(k.transpose(2, 3), v)) / (sums + sums.eq(0));
  }
  if (inputs.lengths) out = out.masked_fill(valid_rows(*inputs.lengths, inputs.q.size(2)).logical_not(), 0);
  return out.to(inputs.v.scalar_type());
}

}  // namespace hkt::peers
