// SPDX-License-Identifier: Apache-2.0
// The theory lab against closed forms and against slower, independent computations.
#include "hkt/theory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <vector>

#include "compare.h"
#include "hkt/modules.h"
#include "hkt/ops.h"
#include "memory_meter.h"

namespace hkt::theory {
namespace {

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
      EXPECT_GE(smallest_eigenvalue_share(scores), -1e-12);
    }
  }
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
    for (int64_t level = 0; level < levels; ++level)
      EXPECT_LE(commutation_error(inputs[level], query, key, level, length), 1e-13) << "level " << level;
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
    const double error = commutation_error(inputs, annihilating(), annihilating(), level, 8 << level);
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

TEST(Theory, DepthErrorsAreTheDefinitionsAndWithinTheirBounds) {
  torch::manual_seed(6);
  for (const bool causal : {false, true})
    for (const int64_t length : {1, 2, 9, 32, 50})
      for (const int64_t levels : {1, 2, 4})
        for (int repeat = 0; repeat < 6; ++repeat) {
          const auto head = random_head(levels, length, 5, causal);
          const auto depth = depth_error(head);
          ASSERT_EQ(std::ssize(depth.errors), levels);
          for (const auto& error : depth.errors) {
            EXPECT_NEAR(error.kl, kl_of_rows(head, error.kept), 1e-12);
            EXPECT_NEAR(error.gaussian + error.non_gaussian + error.remainder, error.kl, 1e-12);
            EXPECT_LE(error.identity_error, 1e-12);
            EXPECT_LE(error.worst_excess, 1e-12);
          }
          EXPECT_NEAR(depth.errors.back().kl, 0, 1e-12);
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
  // S = (0, gap/2), S_1 = (0, gap), δ = (0, −gap/2).
  const double p = 1 / (1 + std::exp(gap / 2)), q = 1 / (1 + std::exp(gap));
  EXPECT_NEAR(depth.errors[0].kl, p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q)), 1e-14);
  EXPECT_NEAR(depth.errors[0].gaussian, p * (1 - p) * gap * gap / 8, 1e-14);
  EXPECT_NEAR(depth.errors[0].hoeffding, gap * gap / 32, 1e-14);
  EXPECT_NEAR(depth.range, gap, 1e-14);
  EXPECT_NEAR(depth.decay, 1, 1e-14);
  EXPECT_TRUE(std::isinf(depth.errors[0].geometric));
}

TEST(Theory, GeometricWeightsGiveTheirDecay) {
  const auto depth = depth_error(random_head(3, 16, 4, false, {4.0 / 7, 2.0 / 7, 1.0 / 7}));
  EXPECT_NEAR(depth.decay, 0.5, 1e-12);
  EXPECT_NEAR(depth.constant, 4.0 / 7, 1e-12);
  EXPECT_LT(depth.errors[1].geometric, depth.errors[0].geometric);
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
    EXPECT_LE(result.convolution_error, 1e-12);
    EXPECT_GT(result.rank, result.head_width);
    EXPECT_LE(result.rank, result.levels * result.head_width);
  }
}

}  // namespace
}  // namespace hkt::theory
