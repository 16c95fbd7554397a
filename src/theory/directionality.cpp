// SPDX-License-Identifier: Apache-2.0
// Symmetric and antisymmetric parts of scores, and whether those of different levels are linearly independent.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

double squared_norm(const at::Tensor& matrix) { return matrix.square().sum().item<double>(); }

// A level's symmetric or antisymmetric scores, before `spread` upsamples them to tokens.
struct Part {
  at::Tensor scores;
  int64_t level;
};

// How many of `length` tokens each position of a level covers.
at::Tensor multiplicities(int64_t level, int64_t length, int64_t rows) {
  const auto begins = at::arange(rows, at::kLong) * (int64_t{1} << level);
  return (length - begins).clamp_max(int64_t{1} << level).to(at::kDouble);
}

// <E_a A E_aᵀ, E_b B E_bᵀ>, computed at the finer of the two resolutions.
double inner(const Part& a, const Part& b, int64_t length) {
  const Part& fine = a.level <= b.level ? a : b;
  const Part& coarse = a.level <= b.level ? b : a;
  const int64_t rows = fine.scores.size(0);
  const auto count = multiplicities(fine.level, length, rows);
  const auto other = spread(coarse.scores, coarse.level - fine.level, rows);
  return (fine.scores * other * count.unsqueeze(0) * count.unsqueeze(1)).sum().item<double>();
}

}  // namespace

double directionality(const at::Tensor& scores) {
  const double all = squared_norm(scores);
  return all > 0 ? squared_norm((scores - scores.t()) / 2) / all : 0;
}

// The mean of row i of a[i] − a[j] is a[i] if a has mean zero, and the row means of any antisymmetric matrix have: they are the
// coefficients of its orthogonal projection on gradients.
AntisymmetricParts antisymmetric_parts(const at::Tensor& scores) {
  const auto directional = (scores - scores.t()) / 2;
  AntisymmetricParts parts;
  parts.potential = directional.mean(1);
  parts.curl = directional - parts.potential.unsqueeze(1) + parts.potential.unsqueeze(0);
  const double all = squared_norm(directional);
  parts.curl_share = all > 0 ? squared_norm(parts.curl) / all : 0;
  return parts;
}

double commutation_error(const at::Tensor& scores, const at::Tensor& inputs, const at::Tensor& query,
                         const at::Tensor& key, std::int64_t level, std::int64_t length) {
  const auto x = inputs.detach().to(at::kCPU, at::kDouble);
  const auto q = query.detach().to(at::kCPU, at::kDouble), k = key.detach().to(at::kCPU, at::kDouble);
  const auto bilinear = at::mm(q.t(), k) / std::sqrt(static_cast<double>(q.size(0)));
  const auto symmetric = spread(at::linalg_multi_dot({x, (bilinear + bilinear.t()) / 2, x.t()}), level, length);
  const auto whole = spread(scores, level, length);
  const double size = std::sqrt(squared_norm(whole));
  return size == 0 ? 0 : std::sqrt(squared_norm((whole + whole.t()) / 2 - symmetric)) / size;
}

Independence independence(const HeadScores& head) {
  constexpr double negligible = 1e-12;  // relative to a level's norm: only rounding
  std::vector<Part> parts;
  for (size_t l = 0; l < head.levels.size(); ++l) {
    const auto& s = head.levels[l];
    const double size = std::sqrt(squared_norm(s));
    for (const double sign : {1.0, -1.0}) {
      const Part part{(s + sign * s.t()) / 2, static_cast<int64_t>(l)};
      const double own = std::sqrt(std::max(0.0, inner(part, part, head.length)));
      if (own > 0 && std::sqrt(squared_norm(part.scores)) > negligible * size)
        parts.push_back({part.scores / own, part.level});
    }
  }
  Independence result;
  result.matrices = static_cast<int64_t>(parts.size());
  if (parts.empty()) return result;
  auto gram = at::empty({result.matrices, result.matrices}, at::kDouble);
  for (int64_t i = 0; i < result.matrices; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const double value = inner(parts[i], parts[j], head.length);
      gram[i][j] = value;
      gram[j][i] = value;
    }
  result.smallest_eigenvalue = at::linalg_eigvalsh(gram)[0].item<double>();
  return result;
}

}  // namespace hkt::theory
