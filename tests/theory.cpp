// SPDX-License-Identifier: Apache-2.0
// The theory lab against closed forms and against slower, independent computations.
#include "hkt/theory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "hkt/modules.h"
#include "hkt/ops.h"
#include "memory_meter.h"

namespace hkt::theory {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();  // which fails every comparison

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

HeadScores random_head(int64_t levels, int64_t length, int64_t head_width, bool causal,
                       const std::vector<double>& weights = {}) {
  std::vector<at::Tensor> q, k;
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t rows = level_rows(length, level);
    q.push_back(random({rows, head_width}));
    k.push_back(random({rows, head_width}));
  }
  const auto lambda = weights.empty() ? at::softmax(random({levels}), 0) : at::tensor(weights, at::kDouble);
  return head_scores(q, k, lambda, causal);
}

TEST(Theory, TheSpectrumIsThatOfTheWholeKernel) {
  torch::manual_seed(0);
  for (const int64_t head_width : {1, 3, 8}) {
    const int64_t width = 24;
    const auto q = random({head_width, width}), k = random({head_width, width});
    const auto m = at::mm(q.t(), k) / std::sqrt(static_cast<double>(head_width));
    const auto whole = at::linalg_eigvalsh((m + m.t()) / 2);
    const auto nonzero = whole.masked_select(whole.abs() > 1e-9);
    const auto spectrum = kernel_spectrum(q, k);
    ASSERT_EQ(std::ssize(spectrum.eigenvalues), nonzero.numel());
    EXPECT_LE((at::tensor(spectrum.eigenvalues, at::kDouble) - nonzero).abs().max().item<double>(), 1e-10);
    const auto negative = nonzero.masked_select(nonzero < 0).square().sum() / nonzero.square().sum();
    EXPECT_NEAR(spectrum.negative_energy, negative.item<double>(), 1e-12);
  }
}

// Against the covariance row by row; and a factor that moves from λ to the scores changes nothing.
TEST(Theory, SharesOfLevelsAreCovariancesWithTheSum) {
  torch::manual_seed(4);
  for (const bool causal : {false, true}) {
    auto head = random_head(3, 13, 4, causal);
    const auto shares = level_shares(head);
    const auto sum = combined(head, 3);
    for (int64_t i = 1; i < 13; ++i) {
      const auto row = [&](const at::Tensor& scores) { return scores[i].narrow(0, 0, causal ? i + 1 : 13); };
      const auto all = row(sum);
      for (int64_t level = 0; level < 3; ++level) {
        const auto own =
            head.weights[static_cast<size_t>(level)] * row(spread(head.levels[static_cast<size_t>(level)], level, 13));
        const double covariance = ((own - own.mean()) * (all - all.mean())).sum().item<double>();
        EXPECT_NEAR(shares[i][level].item<double>(), covariance / (all - all.mean()).square().sum().item<double>(),
                    1e-10);
      }
      EXPECT_NEAR(shares[i].sum().item<double>(), 1, 1e-10);
    }
    if (causal) {
      EXPECT_EQ(shares[0].abs().sum().item<double>(), 0) << "one key leaves no choice";
    }
    head.weights[1] *= 0.125;
    head.levels[1] = head.levels[1] * 8;
    hkt::testing::expect_close(level_shares(head), shares, 1e-12, "another gauge");
  }
}

// Free projections with twice the head's width at most the model's: as many negative eigenvalues as positive ones.
TEST(Theory, FreeProjectionsOfSeveralHeadsAreNeverSemidefinite) {
  torch::manual_seed(1);
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto spectrum = kernel_spectrum(random({6, 12}), random({6, 12}));
    ASSERT_EQ(spectrum.eigenvalues.size(), 12U);
    EXPECT_LT(spectrum.eigenvalues[5], 0);
    EXPECT_GT(spectrum.eigenvalues[6], 0);
    EXPECT_FALSE(spectrum.is_semidefinite);
  }
}

TEST(Theory, TiedAndConeKernelsAreSemidefiniteByConstruction) {
  torch::manual_seed(2);
  for (const Psd psd : {Psd::tied, Psd::cone}) {
    ModelConfig config;
    config.width = 24;
    config.heads = 3;
    config.psd = psd;
    HierarchicalAttention module(config);
    module->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (auto& g : module->cone_g) g.normal_();
    for (auto& c : module->cone_c) c.normal_();
    const auto x = random({1, 40, config.width});
    const auto [queries, keys] = module->projections(0);
    for (int64_t head = 0; head < config.heads; ++head)
      EXPECT_TRUE(kernel_spectrum(queries[head], keys[head]).is_semidefinite);
    const auto [q, k] = module->projected(module->hierarchy(x));
    for (int64_t head = 0; head < config.heads; ++head) {
      std::vector<at::Tensor> own_q, own_k;
      for (size_t level = 0; level < q.size(); ++level) {
        own_q.push_back(q[level][0][head]);
        own_k.push_back(k[level][0][head]);
      }
      const auto scores = combined(head_scores(own_q, own_k, module->weights()[head], false), config.levels);
      EXPECT_GE(definiteness(scores).smallest_share, -1e-12);
      EXPECT_LE(definiteness(scores).negative_energy, 1e-20);
    }
  }
}

// q and k of one head at each level, as a module makes them from x [T, width].
HeadScores scores_of_module(HierarchicalAttentionImpl& module, const at::Tensor& x, int64_t head = 0) {
  const auto [q, k] = module.projected(module.hierarchy(x.unsqueeze(0)));
  std::vector<at::Tensor> own_q, own_k;
  for (size_t level = 0; level < q.size(); ++level) {
    own_q.push_back(q[level][0][head]);
    own_k.push_back(k[level][0][head]);
  }
  return head_scores(own_q, own_k, module.weights()[head], module.config().mask == Mask::causal);
}

HierarchicalAttention module_of(const ModelConfig& config) {
  HierarchicalAttention module(config);
  module->to(at::kDouble);
  return module;
}

at::Tensor all_scores(HierarchicalAttentionImpl& module, const at::Tensor& x) {
  return combined(scores_of_module(module, x), module.config().levels);
}

// A rotation acts alike on queries and keys.
TEST(Theory, TiedAndConeScoresAreSemidefiniteWithRotaryPositions) {
  torch::manual_seed(12);
  const at::NoGradGuard no_grad;
  for (const Psd psd : {Psd::tied, Psd::cone, Psd::free}) {
    auto module = module_of({.levels = 3, .heads = 2, .width = 16, .positions = Positions::rotary, .psd = psd});
    for (auto& c : module->cone_c) c.normal_();
    for (auto& g : module->cone_g) g.normal_();
    const auto found = definiteness(all_scores(*module, random({37, 16})));
    if (psd == Psd::free) {
      EXPECT_LT(found.smallest_share, -1e-3);
    } else {
      EXPECT_GE(found.smallest_share, -1e-12);
    }
  }
}

// The input of two tokens, the first of them zero, shows any direction in which B is negative: necessary, not only sufficient.
TEST(Theory, TheConditionIsNecessary) {
  torch::manual_seed(13);
  const at::NoGradGuard no_grad;
  for (int repeat = 0; repeat < 20; ++repeat) {
    auto module = module_of({.levels = 3, .heads = 1, .width = 6});
    module->alpha.normal_();
    const auto [query, key] = module->projections(0);
    const auto m = at::mm(query[0].t(), key[0]) / std::sqrt(6.0);
    const auto [values, vectors] = at::linalg_eigh((m + m.t()) / 2);
    ASSERT_LT(values[0].item<double>(), 0);
    const auto x = at::stack({at::zeros({6}, at::kDouble), vectors.select(1, 0)});
    const auto head = scores_of_module(*module, x);
    for (size_t level = 1; level < 3; ++level) EXPECT_EQ(head.levels[level].abs().max().item<double>(), 0);
    const auto scores = combined(head, 3);
    EXPECT_NEAR(scores[1][1].item<double>(), head.weights[0] * values[0].item<double>(), 1e-12);
    EXPECT_LT(definiteness(scores).smallest_share, -0.99);
  }
}

// With one head the condition is a matter of the weights: half the signs of the diagonal already decide against random ones.
TEST(Theory, OneHeadMayMeetTheConditionOrNot) {
  const auto q = random({5, 5});
  EXPECT_TRUE(kernel_spectrum(q, q + 1e-3 * random({5, 5})).is_semidefinite);
  EXPECT_FALSE(kernel_spectrum(q, -q).is_semidefinite);
  torch::manual_seed(14);
  int met = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) met += kernel_spectrum(random({3, 3}), random({3, 3})).is_semidefinite;
  EXPECT_GT(met, 0);
  EXPECT_LT(met, 2000 / 8);  // the bound 2^{-d}
}

TEST(Theory, NegativeEnergyOfKnownMatrices) {
  const auto found = definiteness(at::diag(at::tensor({3., 0., -1.}, at::kDouble)));
  EXPECT_NEAR(found.negative_energy, 0.1, 1e-15);
  EXPECT_NEAR(found.smallest_share, -1.0 / 3, 1e-15);
  EXPECT_EQ(definiteness(at::zeros({3, 3}, at::kDouble)).negative_energy, 0);
}

// λ' = λ / (g_l² m_h), normalised, with filters times g_l / g_{l−1} and queries times m_h.
TEST(Theory, LambdaOfOneHeadIsAGauge) {
  torch::manual_seed(15);
  const at::NoGradGuard no_grad;
  auto module = module_of({.levels = 3, .heads = 1, .width = 8});
  module->alpha.normal_();
  const auto x = random({1, 21, 8});
  const auto before = module->forward(x);
  const auto shares = level_shares(scores_of_module(*module, x[0]));
  const auto wanted = at::tensor({0.9, 0.07, 0.03}, at::kDouble);
  const auto ratio = module->weights()[0] / wanted;  // of what scores must grow by
  module->alpha.copy_(wanted.log().unsqueeze(0));
  module->query_key[0]->weight.narrow(0, 0, 8).mul_(ratio[0]);
  for (int64_t level = 1; level < 3; ++level)
    module->filters[static_cast<size_t>(level - 1)]->weight.mul_((ratio[level] / ratio[level - 1]).sqrt());
  hkt::testing::expect_close(module->weights()[0], wanted, 1e-12, "λ");
  hkt::testing::expect_close(module->forward(x), before, 1e-11, "the same attention");
  hkt::testing::expect_close(level_shares(scores_of_module(*module, x[0])), shares, 1e-9, "the same shares");
}

// With H heads that share filters (H − 1)(L − 1) numbers remain: a common factor of a level leaves ratios between heads.
TEST(Theory, HeadsThatShareFiltersKeepTheirRatios) {
  torch::manual_seed(16);
  const at::NoGradGuard no_grad;
  auto module = module_of({.levels = 2, .heads = 2, .width = 8});
  module->alpha.normal_();
  const auto x = random({1, 21, 8});
  const auto before = module->forward(x);
  const auto lambda = module->weights();
  const double g = 3;
  auto changed = lambda.clone();
  changed.select(1, 1).div_(g * g);
  const auto total = changed.sum(1, true);  // each head's kernel takes what makes its weights sum to one
  module->alpha.copy_((changed / total).log());
  module->query_key[0]->weight.narrow(0, 0, 8).mul_(total.repeat_interleave(4, 0));
  module->filters[0]->weight.mul_(g);
  hkt::testing::expect_close(module->forward(x), before, 1e-11, "the same attention");
  const auto cross = [](const at::Tensor& w) { return (w[0][1] * w[1][0] / (w[0][0] * w[1][1])).item<double>(); };
  EXPECT_NEAR(cross(module->weights()), cross(lambda), 1e-12);
  EXPECT_GT((module->weights() - lambda).abs().max().item<double>(), 0.05);
}

// A model's width squared is never formed: its eigenvalues alone would take minutes for all heads of a large model.
TEST(Theory, TheSpectrumOfALargeKernelIsThatOfASmallMatrix) {
  constexpr int64_t head_width = 64, width = 1024;
  const auto q = random({head_width, width}), k = random({head_width, width});
  Spectrum spectrum;
  const auto largest = hkt::testing::largest_bytes([&] { spectrum = kernel_spectrum(q, k); });
  EXPECT_EQ(std::ssize(spectrum.eigenvalues), 2 * head_width);
  EXPECT_GT(largest, 0) << "the meter hears nothing";
  EXPECT_LE(largest, static_cast<int64_t>(2 * head_width * width * sizeof(double))) << "more than both projections";
}

TEST(Theory, DirectionalityOfKnownMatrices) {
  const auto a = random({7, 7});
  EXPECT_NEAR(directionality(a + a.t()), 0, 1e-15);
  EXPECT_NEAR(directionality(a - a.t()), 1, 1e-15);
  EXPECT_EQ(directionality(at::zeros({3, 3}, at::kDouble)), 0);
  EXPECT_NEAR(directionality(at::tensor({0., 1., 0., 0.}, at::kDouble).view({2, 2})), 0.5, 1e-15);
}

// Σ_l λ_l E_l X_l M X_lᵀ E_lᵀ, where row i of E_l has its one in column ⌊i / 2^l⌋.
at::Tensor scores_of_kernel(const std::vector<at::Tensor>& inputs, const at::Tensor& kernel, const at::Tensor& weights,
                            int64_t length) {
  auto sum = at::zeros({length, length}, at::kDouble);
  for (size_t level = 0; level < inputs.size(); ++level) {
    const auto& x = inputs[level];
    auto to_tokens = at::zeros({length, x.size(0)}, at::kDouble);
    for (int64_t i = 0; i < length; ++i) to_tokens[i][i / (1 << level)] = 1;
    const auto wide = at::mm(to_tokens, x);
    sum += weights[static_cast<int64_t>(level)] * at::mm(at::mm(wide, kernel), wide.t());
  }
  return sum;
}

// The hierarchy's scores, made by the functions that the lab uses, fall into those of the kernel's symmetric and
// antisymmetric parts; the latter would not, were queries and keys exchanged anywhere.
TEST(Theory, SymmetrisingCommutesWithTheHierarchy) {
  torch::manual_seed(3);
  constexpr int64_t width = 10, head_width = 4, levels = 3;
  for (const int64_t length : {1, 8, 13}) {
    const auto query = random({head_width, width}), key = random({head_width, width});
    const auto weights = at::softmax(random({levels}), 0);
    std::vector<at::Tensor> inputs, q, k;
    for (int64_t level = 0; level < levels; ++level) {
      inputs.push_back(random({level_rows(length, level), width}));
      q.push_back(at::mm(inputs.back(), query.t()));
      k.push_back(at::mm(inputs.back(), key.t()));
    }
    const auto scores = combined(head_scores(q, k, weights, false), levels);
    const auto kernel = at::mm(query.t(), key) / std::sqrt(static_cast<double>(head_width));
    for (const double sign : {1.0, -1.0})
      hkt::testing::expect_close((scores + sign * scores.t()) / 2,
                                 scores_of_kernel(inputs, (kernel + sign * kernel.t()) / 2, weights, length), 1e-12,
                                 "T = " + std::to_string(length) + (sign > 0 ? ", symmetric" : ", antisymmetric"));
    const auto head = head_scores(q, k, weights, false);
    for (int64_t level = 0; level < levels; ++level) {
      EXPECT_LE(commutation_error(head.levels[level], inputs[level], query, key, level, length), 1e-13);
      EXPECT_GE(commutation_error(head.levels[level] * 1.01, inputs[level], query, key, level, length), 1e-3)
          << "scores that are not those of the kernel";
    }
  }
}

// The module's own queries and keys.
TEST(Theory, SymmetrisingCommutesInTheModule) {
  torch::manual_seed(17);
  const at::NoGradGuard no_grad;
  for (const auto projections : {Projections::shared, Projections::per_level}) {
    auto module = module_of({.levels = 3, .heads = 2, .width = 12, .projections = projections});
    const auto x = random({13, 12});
    const auto inputs = module->hierarchy(x.unsqueeze(0));
    for (int64_t index = 0; index < 2; ++index) {
      const auto head = scores_of_module(*module, x, index);
      for (int64_t level = 0; level < 3; ++level) {
        const auto [query, key] = module->projections(level);
        const auto error = [&](const at::Tensor& k) {
          return commutation_error(head.levels[level], inputs[level][0], query[index], k, level, 13);
        };
        EXPECT_LE(error(key[index]), 1e-13);
        EXPECT_GE(error(key[1 - index]), 1e-2) << "another head's keys";
      }
    }
  }
}

// Projections that almost annihilate their inputs leave little but rounding, which is then to be seen.
TEST(Theory, TheCommutationErrorIsMeasured) {
  torch::manual_seed(4);
  for (const int64_t level : {0, 1}) {
    const auto inputs = 1 + 1e-6 * random({8, 10});
    const auto annihilating = [] {
      const auto projection = random({4, 10});
      return projection - projection.mean(1, true);
    };
    const auto query = annihilating(), key = annihilating();
    const auto scores = at::mm(at::mm(inputs, query.t()), at::mm(inputs, key.t()).t()) / 2;
    const double error = commutation_error(scores, inputs, query, key, level, 8 << level);
    EXPECT_GT(error, 1e-9) << "level " << level;
    EXPECT_LT(error, 1e-1) << "level " << level;
  }
}

TEST(Theory, IndependenceEqualsTheGramMatrixOfSpreadScores) {
  torch::manual_seed(4);
  for (const int64_t length : {8, 13, 32}) {
    const auto head = random_head(3, length, 4, false);
    std::vector<at::Tensor> flat;
    for (int64_t level = 0; level < 3; ++level) {
      const auto s = spread(head.levels[level], level, length);
      for (const auto& part : {(s + s.t()) / 2, (s - s.t()) / 2}) flat.push_back(part.flatten() / part.norm());
    }
    const auto stacked = at::stack(flat);
    const double expected = at::linalg_eigvalsh(at::mm(stacked, stacked.t()))[0].item<double>();
    const auto result = independence(head);
    EXPECT_EQ(result.matrices, 6);
    EXPECT_NEAR(result.smallest_eigenvalue, expected, 1e-12);
    EXPECT_GT(result.smallest_eigenvalue, 0);
  }
}

TEST(Theory, TheDirectionalPartIsGradientAndCurl) {
  torch::manual_seed(18);
  for (const int64_t length : {1, 2, 3, 12}) {
    const auto scores = random({length, length});
    const auto parts = antisymmetric_parts(scores);
    const auto gradient = parts.potential.unsqueeze(1) - parts.potential.unsqueeze(0);
    hkt::testing::expect_close(gradient + parts.curl, (scores - scores.t()) / 2, 1e-13, "the sum");
    EXPECT_NEAR((gradient * parts.curl).sum().item<double>(), 0, 1e-12);
    hkt::testing::expect_close(parts.curl.sum(1), at::zeros({length}, at::kDouble), 1e-13, "rows of the curl");
    if (length == 2) {
      EXPECT_NEAR(parts.curl_share, 0, 1e-15) << "two tokens have no circle";
    }
  }
  const auto a = random({9});
  EXPECT_NEAR(antisymmetric_parts(a.unsqueeze(1) - a.unsqueeze(0)).curl_share, 0, 1e-15);
  const auto circle = at::eye(3, at::kDouble).roll(1, 1);
  EXPECT_NEAR(antisymmetric_parts(circle - circle.t()).curl_share, 1, 1e-15);
}

// A_ij A_ji = e^{2 S⁺_ij} / (Z_i Z_j), A_ij / A_ji = e^{2 S⁻_ij} Z_j / Z_i; without curl A is reversible for π_i ∝ Z_i e^{−2a_i}.
TEST(Theory, WhatTheReciprocalAndTheDirectionalPartControl) {
  torch::manual_seed(19);
  const auto scores = random({7, 7});
  const auto plus = (scores + scores.t()) / 2, minus = (scores - scores.t()) / 2;
  const auto attention = scores.softmax(1);
  const auto z = scores.exp().sum(1);
  hkt::testing::expect_close(attention * attention.t(), (2 * plus).exp() / (z.unsqueeze(1) * z.unsqueeze(0)), 1e-12,
                             "product");
  hkt::testing::expect_close(attention / attention.t(), (2 * minus).exp() * z.unsqueeze(0) / z.unsqueeze(1), 1e-12,
                             "ratio");

  const auto parts = antisymmetric_parts(scores);
  const auto unbalanced = [](const at::Tensor& s, const at::Tensor& potential) {
    const auto flow = (s.exp().sum(1) * (-2 * potential).exp()).unsqueeze(1) * s.softmax(1);
    return ((flow - flow.t()).abs().max() / flow.max()).item<double>();
  };
  EXPECT_LE(unbalanced(scores - parts.curl, parts.potential), 1e-13);
  EXPECT_GE(unbalanced(scores, parts.potential), 1e-2);
  // Softmax absorbs a_i: what is left of the gradient is a bias of the key.
  hkt::testing::expect_close((scores - parts.potential.unsqueeze(1)).softmax(1), attention, 1e-13, "absorbed");
}

// Parts of a level that a finer level could make are not independent of it.
TEST(Theory, DependentPartsAreSeen) {
  torch::manual_seed(20);
  auto head = random_head(2, 8, 4, false);
  head.levels[0] = spread(head.levels[1], 1, 8);
  const auto found = independence(head);
  EXPECT_EQ(found.matrices, 4);
  EXPECT_LT(found.smallest_eigenvalue, 1e-12);
  EXPECT_EQ(independence(random_head(2, 2, 4, false)).matrices, 3) << "one coarse position has no directional part";
}

TEST(Theory, TiedScoresHaveNoDirectionalPart) {
  torch::manual_seed(5);
  std::vector<at::Tensor> q = {random({16, 4}), random({8, 4}), random({4, 4})};
  EXPECT_EQ(independence(head_scores(q, q, at::full({3}, 1.0 / 3, at::kDouble), false)).matrices, 3);
}

// Row by row, with plain loops.
double kl_of_rows(const HeadScores& head, int64_t kept) {
  const auto full = combined(head, static_cast<int64_t>(head.levels.size())), part = combined(head, kept);
  double total = 0;
  for (int64_t i = 0; i < head.length; ++i) {
    const int64_t keys = head.causal ? i + 1 : head.length;
    const auto p = full[i].narrow(0, 0, keys).softmax(0), q = part[i].narrow(0, 0, keys).softmax(0);
    total += (p * (p.log() - q.log())).sum().item<double>();
  }
  return total / static_cast<double>(head.length);
}

HeadScores clone(const HeadScores& head) {
  auto copy = head;
  for (auto& level : copy.levels) level = level.clone();
  return copy;
}

// KL(p ‖ softmax of the first levels), without renormalising their weights.
double plain_kl_of_rows(const HeadScores& head, int64_t kept) {
  auto first = clone(head);
  for (size_t level = static_cast<size_t>(kept); level < first.weights.size(); ++level) first.levels[level].zero_();
  const auto full = combined(head, static_cast<int64_t>(head.levels.size()));
  const auto part = combined(first, static_cast<int64_t>(head.levels.size()));
  double total = 0;
  for (int64_t i = 0; i < head.length; ++i) {
    const int64_t keys = head.causal ? i + 1 : head.length;
    const auto p = full[i].narrow(0, 0, keys).log_softmax(0), q = part[i].narrow(0, 0, keys).log_softmax(0);
    total += (p.exp() * (p - q)).sum().item<double>();
  }
  return total / static_cast<double>(head.length);
}

TEST(Theory, DepthErrorsAreTheDefinitionsAndWithinTheirBounds) {
  torch::manual_seed(6);
  for (const bool causal : {false, true})
    for (const int64_t length : {1, 2, 9, 32, 50})
      for (const int64_t levels : {1, 2, 4})
        for (const double scale : {0.1, 1.0, 10.0}) {
          auto head = random_head(levels, length, 5, causal);
          for (auto& level : head.levels) level = level * scale;
          const auto depth = depth_error(head);
          ASSERT_EQ(std::ssize(depth.errors), levels);
          for (const auto& error : depth.errors) {
            const double size = 1 + scale * scale;
            EXPECT_NEAR(error.kl, kl_of_rows(head, error.kept), 1e-11 * size);
            EXPECT_NEAR(error.plain_kl, plain_kl_of_rows(head, error.kept), 1e-11 * size);
            EXPECT_LE(error.identity_error, 1e-12);
            EXPECT_LE(error.worst_excess, 1e-10);
            EXPECT_LE(error.kl, error.tilted_bound + 1e-11 * size);
            EXPECT_LE(error.tilted, error.tilted_bound + 1e-11 * size);
            EXPECT_LE(error.tilted_bound, error.hoeffding + 1e-11 * size) << "Popoviciu";
            EXPECT_LE(error.remainder, error.remainder_bound + 1e-9 * size);
            EXPECT_LE(error.plain_kl, error.plain_hoeffding + 1e-11 * size);
          }
          EXPECT_NEAR(depth.errors.back().kl, 0, 1e-12);
          EXPECT_NEAR(depth.errors.back().plain_kl, 0, 1e-12);
        }
}

// KL = ∫₀¹ (1 − s) Var_{p_s}(δ) ds, by Simpson's rule; and half the largest variance on the path bounds it more tightly than the
// square of the range.
TEST(Theory, TheDivergenceIsAnIntegralOfVariances) {
  torch::manual_seed(21);
  for (int repeat = 0; repeat < 20; ++repeat) {
    auto head = random_head(3, 40, 5, false);
    for (auto& level : head.levels) level = level * 3;
    const auto delta = combined(head, 3) - combined(head, 1);
    const auto log_p = combined(head, 3).log_softmax(1);
    const int steps = 400;
    auto integral = at::zeros({40}, at::kDouble), largest = at::zeros({40}, at::kDouble);
    for (int i = 0; i <= steps; ++i) {
      const double s = static_cast<double>(i) / steps, simpson = i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2;
      const auto p = (log_p - s * delta).softmax(1);
      const auto variance = (p * (delta - (p * delta).sum(1, true)).square()).sum(1);
      integral += simpson / (3 * steps) * (1 - s) * variance;
      largest = at::maximum(largest, variance);
    }
    const auto error = depth_error(head).errors[0];
    EXPECT_NEAR(integral.mean().item<double>(), error.kl, 1e-6 * (1 + error.kl));
    EXPECT_LE(error.tilted, (largest / 2).mean().item<double>() + 1e-12);
    EXPECT_GE(error.tilted_bound, (largest / 2).mean().item<double>() - 1e-12);
    EXPECT_LT(error.tilted_bound, error.hoeffding);
  }
}

// Scores of two values under two equally likely keys: everything is known in closed form.
TEST(Theory, DepthErrorOfACoinIsKnown) {
  const double gap = 0.8;
  HeadScores head;
  head.length = 2;
  head.weights = {0.5, 0.5};
  head.levels = {at::tensor({0., gap, 0., gap}, at::kDouble).view({2, 2}), at::zeros({1, 1}, at::kDouble)};
  const auto depth = depth_error(head);
  // S = (0, gap/2), S_1 = (0, gap), δ = (0, −gap/2): along the path a coin of p_s = 1 / (1 + e^{(1 + s) gap/2}).
  const double p = 1 / (1 + std::exp(gap / 2)), q = 1 / (1 + std::exp(gap));
  EXPECT_NEAR(depth.errors[0].kl, p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q)), 1e-14);
  EXPECT_NEAR(depth.errors[0].gaussian, p * (1 - p) * gap * gap / 8, 1e-14);
  EXPECT_NEAR(depth.errors[0].tilted, p * (1 - p) * gap * gap / 8, 1e-14) << "the variance falls along the path";
  EXPECT_NEAR(depth.errors[0].hoeffding, gap * gap / 32, 1e-14);
  EXPECT_NEAR(depth.reach[0], gap / 2, 1e-14);
  EXPECT_EQ(depth.reach[1], 0);
  EXPECT_NEAR(depth.errors[0].plain_kl, 0, 1e-14) << "level 1 says nothing";
}

TEST(Theory, GeometricReachGivesItsDecay) {
  const auto decay = fit_decay({4, 2, 1});
  EXPECT_NEAR(decay.rho, 0.5, 1e-12);
  EXPECT_NEAR(decay.constant, 4, 1e-12);
  const auto uneven = fit_decay({1, 5, 0, 2});
  for (const auto& [level, reach] : {std::pair(0, 1.0), {1, 5.0}, {3, 2.0}})
    EXPECT_LE(reach, uneven.constant * std::pow(uneven.rho, level) * (1 + 1e-12));
  EXPECT_EQ(fit_decay({3}).rho, 1) << "nothing to fit";
}

// A factor that moves from λ to the scores changes neither the reach nor what is lost without renormalising, but what is lost with it.
TEST(Theory, ReachIsNoMatterOfTheGauge) {
  torch::manual_seed(22);
  const auto head = random_head(3, 17, 4, true, {0.5, 0.3, 0.2});
  auto other = clone(head);
  other.weights = {0.1, 0.2, 0.7};
  for (size_t level = 0; level < 3; ++level) other.levels[level] *= head.weights[level] / other.weights[level];
  const auto a = depth_error(head), b = depth_error(other);
  for (size_t level = 0; level < 3; ++level) {
    EXPECT_NEAR(a.reach[level], b.reach[level], 1e-12);
    EXPECT_NEAR(a.errors[level].plain_kl, b.errors[level].plain_kl, 1e-12);
  }
}

TEST(Theory, WeightlessLevelsLeaveNothing) {
  const auto depth = depth_error(random_head(3, 16, 4, true, {0, 0, 1}));
  for (const auto& error : depth.errors) EXPECT_LE(error.worst_excess, 1e-12);
  EXPECT_GT(depth.errors[1].kl, 0);
}

TEST(Theory, MardiaAcceptsGaussiansAndRejectsOthers) {
  torch::manual_seed(7);
  int rejected = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto result = mardia(at::mm(random({256, 32}), random({32, 32})));
    EXPECT_EQ(result.dimensions, 16);
    EXPECT_NEAR(result.gaussian_kurtosis, 285.8, 0.05);
    rejected += (result.kurtosis_p < 0.05) + (result.skewness_p < 0.05);
  }
  EXPECT_LE(rejected, 25);  // of 200, 10 expected
  const auto skewed = mardia(random({256, 32}).exp());
  EXPECT_LT(skewed.skewness_p, 1e-6);
  EXPECT_LT(skewed.kurtosis_p, 1e-6);
}

// n rows of scores of Gaussian queries for the same keys, which have one Gaussian distribution, as in a sequence.
at::Tensor rows_of_one_sequence(int64_t rows, int64_t head_width) {
  return at::mm(random({rows, head_width}), random({head_width, 32}));
}

// The sizes of both tests and of their combination over eight sequences, under the null; and that rows of several sequences, which
// have other keys, are not of one Gaussian distribution even there.
TEST(Theory, TheTestsHaveTheirSizeWithinASequenceAndNotAcross) {
  torch::manual_seed(23);
  for (const auto& [rows, head_width] : {std::pair<int64_t, int64_t>(64, 8), {128, 32}, {256, 32}}) {
    constexpr int repeats = 60, sequences = 8;
    int skewness = 0, kurtosis = 0, both_skewness = 0, both_kurtosis = 0;
    double mean = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      std::vector<double> skewness_p, kurtosis_p;
      for (int i = 0; i < sequences; ++i) {
        const auto test = mardia(rows_of_one_sequence(rows, head_width));
        skewness_p.push_back(test.skewness_p);
        kurtosis_p.push_back(test.kurtosis_p);
        skewness += test.skewness_p < 0.05;
        kurtosis += test.kurtosis_p < 0.05;
        mean += test.skewness / test.gaussian_skewness / (repeats * sequences);
      }
      both_skewness += combined_p(skewness_p) < 0.05;
      both_kurtosis += combined_p(kurtosis_p) < 0.05;
    }
    // 24 of 480 and 3 of 60 are expected; more than these are there once in a thousand times.
    EXPECT_LE(skewness, 41) << rows;
    EXPECT_LE(kurtosis, 41) << rows;
    EXPECT_GE(skewness + kurtosis, 16) << rows << ": not too careful either";
    EXPECT_LE(both_skewness, 10) << rows;
    EXPECT_LE(both_kurtosis, 10) << rows;
    EXPECT_NEAR(mean, 1, 0.02) << rows;
  }
  int pooled = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<at::Tensor> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(rows_of_one_sequence(32, 32));
    pooled += mardia(at::cat(rows)).kurtosis_p < 0.05;
  }
  EXPECT_GE(pooled, 18) << "of 20: rows of several sequences are a mixture";
}

TEST(Theory, SmallSampleMeansOfMardia) {
  const auto test = mardia(random({256, 32}));
  EXPECT_NEAR(256 * test.gaussian_skewness / 6, 805.4, 0.1) << "816 is the mean for infinitely many";
  EXPECT_NEAR(test.gaussian_kurtosis, 285.8, 0.05);
}

TEST(Theory, CombinedAndCorrectedProbabilities) {
  EXPECT_NEAR(combined_p({0.3}), 0.3, 1e-12);
  EXPECT_NEAR(combined_p({0.1, 0.1}), 0.01 * (1 - std::log(0.01)), 1e-12);  // P(U₁U₂ ≤ x) = x(1 − log x)
  EXPECT_LT(combined_p({0, 0.5}), 1e-100);
  EXPECT_EQ(combined_p({}), 1);
  const auto corrected = holm({0.01, 0.04, 0.03});
  EXPECT_NEAR(corrected[0], 0.03, 1e-15);
  EXPECT_NEAR(corrected[2], 0.06, 1e-15);
  EXPECT_NEAR(corrected[1], 0.06, 1e-15) << "not below a smaller one's";
}

TEST(Theory, MardiaOfTwoPointsIsKnown) {
  // ±1 equally often: b₁ = 0, b₂ = 1.
  const auto result = mardia(at::tensor({1., -1.}, at::kDouble).repeat({32}).unsqueeze(1));
  EXPECT_EQ(result.dimensions, 1);
  EXPECT_NEAR(result.skewness, 0, 1e-12);
  EXPECT_NEAR(result.kurtosis, 1, 1e-12);
}

TEST(Theory, MardiaSaysWhyThereIsNoTest) {
  EXPECT_NE(mardia(random({3, 5})).trouble.find("3 samples"), std::string::npos);
  EXPECT_NE(mardia(at::ones({50, 5}, at::kDouble)).trouble.find("equal"), std::string::npos);
  EXPECT_EQ(mardia(random({40, 3})).dimensions, 3);
  EXPECT_EQ(mardia(random({10, 32})).dimensions, 6);
}

TEST(Theory, HktContainsAttentionAndConvolutionAndMore) {
  for (const int64_t seed : {0, 1, 2}) {
    const auto result = subsumption(seed);
    EXPECT_LE(result.standard_error, 1e-13);
    EXPECT_LE(result.convolution.error, result.convolution.bound + 1e-12);
    EXPECT_GT(result.rank, result.head_width);
    EXPECT_EQ(result.rank, result.rank_bound) << "generic scores reach it";
  }
}

// Without a mask, with one, with grouped keys and where keys come from queries.
TEST(Theory, EveryModuleContainsStandardAttention) {
  torch::manual_seed(24);
  const at::NoGradGuard no_grad;
  const std::vector<ModelConfig> configs = {
      {.levels = 3, .heads = 2, .width = 16, .mask = Mask::causal},
      {.levels = 4, .heads = 4, .key_heads = 2, .width = 16, .positions = Positions::rotary},
      {.levels = 2, .heads = 1, .width = 8, .psd = Psd::tied},
      {.levels = 3, .heads = 2, .width = 16, .psd = Psd::cone},
      {.levels = 3, .heads = 2, .width = 16, .projections = Projections::per_level},
      {.levels = 3,
       .heads = 2,
       .width = 16,
       .filter = Filter::depthwise,
       .filter_on = FilterOn::projected,
       .short_convolution = Convolution::depthwise},
      {.levels = 1, .heads = 2, .width = 16}};
  for (const auto& config : configs) {
    auto module = module_of(config);
    if (module->alpha.defined()) module->alpha.normal_();
    const auto error = contained_attention_error(*module, random({21, config.width}));
    EXPECT_LE(error.value_or(nan), 1e-12);
  }
  const auto none = [](ModelConfig config) { return contained_attention_error(*module_of(config), random({9, 16})); };
  EXPECT_FALSE(none({.levels = 2, .heads = 2, .width = 16, .filter = Filter::mean})) << "a constant filter is not zero";
  EXPECT_FALSE(none({.levels = 2, .heads = 2, .width = 16, .weights = {LevelWeights::Kind::one_level, 1}}))
      << "λ_0 = 0";
}

// The error falls as e^−c and stays below its bound; nothing underflows.
TEST(Theory, AConvolutionIsALimit) {
  double last = 1e300;
  for (const double c : {5.0, 10.0, 20.0}) {
    const auto limit = convolution_limit(3, c);
    EXPECT_LE(limit.error, limit.bound);
    EXPECT_GE(limit.error, limit.bound * 1e-4) << "the bound says something";
    EXPECT_LT(limit.error, last / 10);
    last = limit.error;
  }
}

TEST(Theory, TheRankOfRowCentredScores) {
  EXPECT_EQ(centred_rank_bound(3, 4, 64), 12);
  EXPECT_EQ(centred_rank_bound(3, 4, 16), 11) << "2·4 + 4 − 1";
  EXPECT_EQ(centred_rank_bound(3, 8, 9), 8) << "T − 1";
  EXPECT_EQ(centred_rank_bound(1, 4, 64), 4);
  torch::manual_seed(25);
  for (const int64_t length : {12, 15, 32, 64})
    for (const int64_t levels : {1, 2, 3}) {
      const auto scores = combined(random_head(levels, length, 3, true), levels);
      EXPECT_EQ(centred_block_rank(scores), std::min(centred_rank_bound(levels, 3, length / 2), length / 2))
          << length << " tokens, " << levels << " levels";
    }
  EXPECT_EQ(centred_block_rank(at::ones({8, 8}, at::kDouble)), 0) << "softmax ignores what is constant along a row";
}

// No standard attention without positions, of any width and number of heads, tells permuted tokens from others.
TEST(Theory, StandardAttentionIsEquivariantAndHktIsNot) {
  torch::manual_seed(26);
  const auto gap = [](ModelConfig config) { return equivariance_gap(*module_of(config), random({16, config.width})); };
  EXPECT_LE(gap({.levels = 1, .heads = 2, .width = 8}).value_or(nan), 1e-14);
  EXPECT_GE(gap({.levels = 2, .heads = 2, .width = 8}).value_or(nan), 1e-3);
  EXPECT_FALSE(gap({.levels = 1, .heads = 2, .width = 8, .mask = Mask::causal}));
  EXPECT_FALSE(gap({.levels = 1, .heads = 2, .width = 8, .positions = Positions::rotary}));
}

// ---- cost

TEST(Theory, CostOfScores) {
  const auto ratio = [](int64_t length, int64_t levels, Mask mask = Mask::none) {
    const ModelConfig config{.levels = levels, .mask = mask};
    return layer_cost(config, length).scores / standard_layer_cost(config, length).scores;
  };
  EXPECT_DOUBLE_EQ(ratio(64, 3), 1.3125);
  for (const int64_t levels : {2, 3, 5, 7}) EXPECT_LT(ratio(1 << 12, levels), 4.0 / 3);
  EXPECT_DOUBLE_EQ(ratio(5, 3), 1.52) << "odd lengths cost more";
  EXPECT_GT(ratio(16, 3, Mask::causal), 4.0 / 3) << "short causal ones, too";
  EXPECT_LT(ratio(24, 3, Mask::causal), 4.0 / 3);
}

// Projections, dense filters and attention together: at most 4/3 exactly from T = (80/17)·d on.
TEST(Theory, CostOfALayer) {
  const ModelConfig config{.levels = 3, .heads = 1, .width = 68};
  const auto ratio = [&](int64_t length) {
    return layer_cost(config, length).total() / standard_layer_cost(config, length).total();
  };
  EXPECT_DOUBLE_EQ(ratio(320), 4.0 / 3);
  EXPECT_GT(ratio(316), 4.0 / 3);
  EXPECT_LT(ratio(324), 4.0 / 3);
  // Counted by hand for T = 4, d = 2: projections 4·4·(1 + 1) + 7·4·2, filters 3·2·4, scores (16 + 4 + 1)·2, values 16·2.
  const auto cost = layer_cost({.levels = 3, .heads = 1, .width = 2}, 4);
  EXPECT_EQ(cost.projections, 32 + 56);
  EXPECT_EQ(cost.filters, 24);
  EXPECT_EQ(cost.scores, 42);
  EXPECT_EQ(cost.values, 32);
}

// ---- phase and length

Transformer model_of(ModelConfig config) {
  config.blocks = 2;
  config.feedforward = 16;
  config.vocab = 30;
  auto model = create_model(config);
  model->to(at::kDouble);
  model->eval();
  return model;
}

TEST(Theory, PhaseZeroIsTheModelAndAWholePeriodChangesNothing) {
  torch::manual_seed(27);
  const at::NoGradGuard no_grad;
  const std::vector<ModelConfig> configs = {{.levels = 3, .heads = 2, .width = 16, .positions = Positions::none},
                                            {.levels = 4,
                                             .heads = 2,
                                             .width = 16,
                                             .positions = Positions::rotary,
                                             .mask = Mask::causal,
                                             .pooling = Pooling::last},
                                            {.levels = 3,
                                             .heads = 4,
                                             .key_heads = 2,
                                             .width = 16,
                                             .filter = Filter::depthwise,
                                             .filter_on = FilterOn::projected,
                                             .short_convolution = Convolution::depthwise},
                                            {.kind = ModelKind::language,
                                             .levels = 3,
                                             .heads = 2,
                                             .width = 16,
                                             .positions = Positions::rotary,
                                             .mask = Mask::causal}};
  for (const auto& config : configs) {
    auto model = model_of(config);
    const auto tokens = at::randint(30, {97}, at::kLong);
    const auto logits = model->forward(tokens.unsqueeze(0))[0];
    hkt::testing::expect_close(logits_at_phase(*model, tokens, 0), logits, 1e-11, "phase 0");
    const auto period = int64_t{1} << (config.levels - 1);
    hkt::testing::expect_close(logits_at_phase(*model, tokens, period), logits, 1e-10, "a whole period");
    hkt::testing::expect_close(logits_at_phase(*model, tokens, period, 14), logits_at_phase(*model, tokens, 0, 14),
                               1e-10, "a whole period, without the beginning");
    const auto effects = phase_effects(*model, tokens);
    ASSERT_EQ(std::ssize(effects), period);
    for (const auto& effect : effects) {
      if (effect.shift < period) {
        EXPECT_GT(effect.logit_change, 1e-6);
      } else {
        EXPECT_LE(effect.logit_change, 1e-10);
      }
    }
  }
  EXPECT_TRUE(
      phase_effects(*model_of({.levels = 1, .heads = 2, .width = 16}), at::randint(30, {9}, at::kLong)).empty());
}

// What is left out reaches as far as windows do: the token before the first has no influence on what is left in.
TEST(Theory, NothingThatCountsAtAPhaseHasSeenZeros) {
  torch::manual_seed(29);
  const at::NoGradGuard no_grad;
  auto model = model_of({.levels = 3, .heads = 2, .width = 16, .positions = Positions::none, .pooling = Pooling::last});
  const auto tokens = at::randint(30, {80}, at::kLong);
  auto other = tokens.clone();
  other[0] = (other[0] + 1) % 30;
  constexpr int64_t window = 6;  // K(2^(L−1) − 1)
  for (const int64_t shift : {0, 1, 2, 3}) {
    hkt::testing::expect_close(logits_at_phase(*model, other, shift, window + 1),
                               logits_at_phase(*model, tokens, shift, window + 1), 1e-14,
                               "the first token is in no window that counts");
    EXPECT_FALSE(at::equal(logits_at_phase(*model, other, shift, 0), logits_at_phase(*model, tokens, shift, 0)));
  }
}

TEST(Theory, OnlyDilutionChangesWithTheLength) {
  torch::manual_seed(28);
  for (const int64_t kernel_size : {2, 3}) {
    auto model =
        model_of({.levels = 3, .heads = 2, .width = 16, .kernel_size = kernel_size, .positions = Positions::none});
    const auto effect = length_effect(*model, at::randint(30, {130}, at::kLong), 4).value_or(LengthEffect{});
    EXPECT_EQ(effect.length, 128);
    EXPECT_LE(effect.score_change, 1e-12);
    EXPECT_LE(effect.copy_difference, 1e-12);
    EXPECT_NEAR(effect.dilution, std::log(4), 0.05);
    EXPECT_EQ(effect.changed, 0);
  }
  const auto tokens = at::randint(30, {130}, at::kLong);
  EXPECT_FALSE(length_effect(*model_of({.heads = 2, .width = 16}), tokens, 4)) << "sinusoidal positions";
  EXPECT_FALSE(length_effect(*model_of({.heads = 2, .width = 16, .positions = Positions::none, .mask = Mask::causal}),
                             tokens, 4));
}

}  // namespace
}  // namespace hkt::theory
