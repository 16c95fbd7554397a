// SPDX-License-Identifier: Apache-2.0
// The paper's claims about HKT as measurable quantities: functions of weights and scores. Everything is computed in float64
// on the CPU. docs/theory.md states and proves the underlying results.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hkt/export.h"

namespace hkt::theory {

// ---- 1. The kernel and its positive semidefinite condition ----

// The eigenvalues of B = (M + Mᵀ)/2, M = W_Q W_Kᵀ / √(head width), that are not zero by construction.
struct HKT_EXPORT Spectrum {
  std::vector<double> eigenvalues;  // ascending; at most twice the head width
  double negative_energy = 0;       // Σ_{μ<0} μ² / Σ μ²
  double smallest_over_largest = 0;
  bool is_semidefinite = false;  // up to rounding
};
// W_Qᵀ and W_Kᵀ of one head, [head width, width].
HKT_EXPORT Spectrum kernel_spectrum(const at::Tensor& query, const at::Tensor& key);

// The smallest eigenvalue of the symmetric part of a square matrix over its largest in magnitude; 0 for a zero matrix.
HKT_EXPORT double smallest_eigenvalue_share(const at::Tensor& scores);

// ---- the scores of one head on one sequence ----

struct HKT_EXPORT HeadScores {
  std::vector<at::Tensor> levels;  // s(l) = q(l) k(l)ᵀ / √(head width), [T_l, T_l]
  std::vector<double> weights;     // λ
  std::int64_t length = 0;         // T
  bool causal = false;
};
// q and k of each level, [T_l, head width].
HKT_EXPORT HeadScores head_scores(const std::vector<at::Tensor>& q, const std::vector<at::Tensor>& k,
                                  const at::Tensor& weights, bool causal);
// E s Eᵀ: the scores of level `level`, upsampled to all pairs of the `length` tokens.
HKT_EXPORT at::Tensor spread(const at::Tensor& scores, std::int64_t level, std::int64_t length);
// Σ over the first `kept` levels, λ renormalised; zero if their weights are all zero. kept = L gives S itself.
HKT_EXPORT at::Tensor combined(const HeadScores& head, std::int64_t kept);
// What each level contributes to each query's choice among its visible keys j: the covariance over j of λ_l s(l) with S over the
// variance of S. [T, L], each row's shares sum to 1 and may be negative; zeros where S does not distinguish the keys. Unlike λ
// they do not change when a factor moves between λ and the filters.
HKT_EXPORT at::Tensor level_shares(const HeadScores& head);

// ---- 2. Reciprocal and directional attention ----

// ‖s⁻‖² / ‖s‖², the antisymmetric share of a level's scores; 0 for zero scores.
HKT_EXPORT double directionality(const at::Tensor& scores);
// The relative distance (Frobenius) between the symmetric part of E X M Xᵀ Eᵀ and E X B Xᵀ Eᵀ.
HKT_EXPORT double commutation_error(const at::Tensor& inputs, const at::Tensor& query, const at::Tensor& key,
                                    std::int64_t level, std::int64_t length);
// The smallest eigenvalue of the Gram matrix of the normalised, non-zero matrices among E_l s(l)± E_lᵀ.
struct HKT_EXPORT Independence {
  std::int64_t matrices = 0;  // of at most 2L
  double smallest_eigenvalue = 0;
};
HKT_EXPORT Independence independence(const HeadScores& head);

// ---- 4. The error of keeping fewer levels ----

// For the first `kept` levels, over all query rows and their visible keys: KL(p ‖ p_kept), its parts and its bounds.
struct HKT_EXPORT DepthError {
  std::int64_t kept = 0;
  double kl = 0;                                         // mean over rows
  double gaussian = 0, non_gaussian = 0, remainder = 0;  // its parts ½κ₂, −κ₃/6 + κ₄/24 and the rest
  double hoeffding = 0;                                  // mean of range(δ)²/8
  double geometric = 0;                                  // the bound (r c / (1 − ρ))² ρ^{2·kept} / 2; infinite if ρ ≥ 1
  double weight_bound = 0;                               // r²(1 − Λ)²/2, before λ's decay is fitted
  double identity_error = 0;                             // the largest |KL − (E_p δ + log E_p e^{−δ})| over 1 + max|δ|
  // The largest excess of a row's KL over the tightest bound of that row, over 1 + max|δ|; ≤ 0 up to rounding.
  double worst_excess = 0;
};
struct HKT_EXPORT Depth {
  std::vector<DepthError> errors;  // kept = 1, …, L
  double decay = 0;                // ρ, fitted to λ_l ≤ c ρ^l
  double constant = 0;             // c
  double range = 0;                // r, the largest range of any level's row
};
HKT_EXPORT Depth depth_error(const HeadScores& head);

// ---- 5. How close scores are to Gaussian ----

// Mardia's test on the rows of [samples, dimensions], projected on their first principal components.
struct HKT_EXPORT Mardia {
  std::int64_t samples = 0;
  std::int64_t dimensions = 0;  // after the projection: at most 16 and the rank
  double skewness = 0;          // b₁
  double kurtosis = 0;          // b₂, the paper's κ
  double gaussian_kurtosis = 0;
  double skewness_p = 1, kurtosis_p = 1;
  std::vector<double> first_component;  // standardised and sorted, for a QQ plot
  std::string trouble;                  // why the test could not be made; empty if it was
};
HKT_EXPORT Mardia mardia(const at::Tensor& rows, std::int64_t most_dimensions = 16);

// ---- 3. The models that HKT contains, constructed with its modules ----

struct HKT_EXPORT Subsumption {
  double standard_error = 0;     // of HierarchicalAttention with λ on level 0 against scaled_dot_product_attention
  double convolution_error = 0;  // of HierarchicalAttention against conv1d with a kernel of both signs
  std::int64_t head_width = 0;   // D, the highest rank that one level's scores can have
  std::int64_t rank = 0;         // of HKT's row-centred scores, above D
  std::int64_t levels = 0;
};
HKT_EXPORT Subsumption subsumption(std::int64_t seed);

}  // namespace hkt::theory
