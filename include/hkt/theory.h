// SPDX-License-Identifier: Apache-2.0
// The paper's claims about HKT as measurable quantities: functions of weights and scores. Everything is computed in float64
// on the CPU. docs/theory.md states and proves the underlying results.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hkt/export.h"
#include "hkt/model_config.h"
#include "hkt/modules.h"

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

// Of the symmetric part of a square matrix; zeros for a zero matrix.
struct HKT_EXPORT Definiteness {
  double smallest_share = 0;   // the smallest eigenvalue over the largest in magnitude
  double negative_energy = 0;  // Σ_{μ<0} μ² / Σ μ²
};
HKT_EXPORT Definiteness definiteness(const at::Tensor& scores);

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
// s⁻ = gradient + curl, orthogonally, with gradient[i, j] = a[i] − a[j].
struct HKT_EXPORT AntisymmetricParts {
  at::Tensor potential;   // a, [T], of mean zero
  at::Tensor curl;        // rows sum to zero
  double curl_share = 0;  // ‖curl‖² / ‖s⁻‖²; 0 if s⁻ is zero
};
HKT_EXPORT AntisymmetricParts antisymmetric_parts(const at::Tensor& scores);
// The relative distance (Frobenius) between the symmetric part of E s Eᵀ, for a level's scores s as the module made them, and
// E X B Xᵀ Eᵀ from the level's inputs X and its projections (as for kernel_spectrum).
HKT_EXPORT double commutation_error(const at::Tensor& scores, const at::Tensor& inputs, const at::Tensor& query,
                                    const at::Tensor& key, std::int64_t level, std::int64_t length);
// The smallest eigenvalue of the Gram matrix of the normalised, non-zero matrices among E_l s(l)± E_lᵀ.
struct HKT_EXPORT Independence {
  std::int64_t matrices = 0;  // of at most 2L
  double smallest_eigenvalue = 0;
};
HKT_EXPORT Independence independence(const HeadScores& head);

// ---- 3. The models that HKT contains, constructed with its modules ----

// A causal convolution as the limit of large c: taps that are absent get the score −c, so that their weight is e^−c.
struct HKT_EXPORT ConvolutionLimit {
  double error = 0;  // the largest difference from conv1d
  double bound = 0;  // 2 n e^−c Σ|w| max|x|
};
HKT_EXPORT ConvolutionLimit convolution_limit(std::int64_t seed, double c);

struct HKT_EXPORT Subsumption {
  double standard_error =
      0;  // of HierarchicalAttention with zero filters and M/λ_0 against scaled_dot_product_attention
  ConvolutionLimit convolution;  // at c = 30
  std::int64_t head_width = 0;   // D, the highest rank that one level's scores can have
  std::int64_t levels = 0;
  std::int64_t rank = 0;        // of HKT's row-centred scores, above D
  std::int64_t rank_bound = 0;  // min(L·D, min_j(j·D + T_j − 1))
};
HKT_EXPORT Subsumption subsumption(std::int64_t seed);

// min(L·D, min_j(j·D + T_j − 1)), the highest rank of row-centred scores.
HKT_EXPORT std::int64_t centred_rank_bound(std::int64_t levels, std::int64_t head_width, std::int64_t length);
// The rank of the row-centred scores of queries in the second half for keys in the first, all of which a causal mask leaves.
HKT_EXPORT std::int64_t centred_block_rank(const at::Tensor& scores);
// A module's own weights with zero filters and M/λ_0, against scaled_dot_product_attention on its queries, keys and values of level 0:
// the largest difference over the largest output. None if its filters or λ_0 do not allow it. x [T, width].
HKT_EXPORT std::optional<double> contained_attention_error(HierarchicalAttentionImpl& module, const at::Tensor& x);
// ‖f(Px) − P f(x)‖ / ‖f(x)‖ for the permutation P that reverses the tokens. None where standard attention is not equivariant either:
// under a mask, with rotary positions or a short convolution.
HKT_EXPORT std::optional<double> equivariance_gap(HierarchicalAttentionImpl& module, const at::Tensor& x);

// ---- 4. The error of keeping fewer levels ----

// For the first `kept` levels, over all query rows and their visible keys: KL(p ‖ p_kept), its parts and its bounds.
struct HKT_EXPORT DepthError {
  std::int64_t kept = 0;
  double kl = 0;        // mean over rows
  double gaussian = 0;  // mean of ½κ₂
  // Means over rows of the magnitudes of −κ₃/6 + κ₄/24 and of what is then left: their signs differ from row to row.
  double non_gaussian = 0, remainder = 0;
  double remainder_bound = 0;
  double tilted = 0;          // mean of ½ max Var_{p_s}(δ) over nine points of the path p_s ∝ p e^{−sδ}
  double tilted_bound = 0;    // the same for all points between them
  double hoeffding = 0;       // mean of range(δ)²/8
  double identity_error = 0;  // the largest |KL − (E_p δ + log E_p e^{−δ})| over 1 + max|δ|
  // The largest excess of a row's KL over the tightest bound of that row, or of its remainder over its own, over 1 + max|δ|;
  // ≤ 0 up to rounding.
  double worst_excess = 0;
  double plain_kl = 0;         // without renormalising: KL(softmax(S) ‖ softmax(Σ_{l<kept} λ_l s(l)))
  double plain_hoeffding = 0;  // its bound, mean of (Σ_{l≥kept} λ_l range(s(l)))²/8 over rows
};
struct HKT_EXPORT Depth {
  std::vector<DepthError> errors;  // kept = 1, …, L
  std::vector<double> reach;       // λ_l · the largest range of a row of s(l), by level
};
HKT_EXPORT Depth depth_error(const HeadScores& head);

// reach_l ≤ c ρ^l: ρ by least squares on log reach, then the smallest c that makes it true.
struct HKT_EXPORT Decay {
  double rho = 1, constant = 0;
};
HKT_EXPORT Decay fit_decay(const std::vector<double>& reach);

// ---- 5. How close scores are to Gaussian ----

// Mardia's test on the rows of [samples, dimensions], projected on their first principal components. The rows must be of one
// sequence: rows of several have different keys, hence different covariances.
struct HKT_EXPORT Mardia {
  std::int64_t samples = 0;
  std::int64_t dimensions = 0;                          // after the projection: at most 16 and the rank
  double skewness = 0;                                  // b₁
  double kurtosis = 0;                                  // b₂, the paper's κ
  double gaussian_skewness = 0, gaussian_kurtosis = 0;  // their means for Gaussian rows, at this number of samples
  double skewness_p = 1, kurtosis_p = 1;
  std::vector<double> first_component;  // standardised and sorted, for a QQ plot
  std::string trouble;                  // why the test could not be made; empty if it was
};
HKT_EXPORT Mardia mardia(const at::Tensor& rows, std::int64_t most_dimensions = 16);

// Fisher's combination of independent tests of one hypothesis.
HKT_EXPORT double combined_p(const std::vector<double>& p);
// p-values corrected for their number by Holm's method, in the same order.
HKT_EXPORT std::vector<double> holm(const std::vector<double>& p);

// ---- 6. Cost ----

// Multiply-adds of one attention layer on a sequence, without softmax.
struct HKT_EXPORT LayerCost {
  double projections = 0, filters = 0, scores = 0, values = 0;

  double total() const { return projections + filters + scores + values; }
};
HKT_EXPORT LayerCost layer_cost(const ModelConfig& config, std::int64_t length);
// The same layer with one level.
HKT_EXPORT LayerCost standard_layer_cost(const ModelConfig& config, std::int64_t length);

// ---- 7. Phase and length ----

// The logits of one sequence, tokens [T], where the coarse grids begin `shift` tokens before it, as if so many rows of zeros stood
// before the input of every attention layer without being keys. `model` is a float64 copy in evaluation mode. In block b keys begin
// at token (b + 1) · window, and so do predictions after the last: with the length of a block's windows nothing that counts has
// seen zeros, which a model knows from the beginning of its sequences alone.
HKT_EXPORT at::Tensor logits_at_phase(TransformerImpl& model, const at::Tensor& tokens, std::int64_t shift,
                                      std::int64_t window = 0);

struct HKT_EXPORT PhaseEffect {
  std::int64_t shift = 0;
  double changed = 0;       // the share of predictions that change
  double logit_change = 0;  // the largest, over the largest logit in magnitude
};
// Under shifts 1 … 2^(L−1), beyond eight powers of two alone; none for one level, or fewer tokens than twice those left out.
HKT_EXPORT std::vector<PhaseEffect> phase_effects(TransformerImpl& model, const at::Tensor& tokens);

// A sequence cut to a multiple of 2^(L−1), and the same repeated.
struct HKT_EXPORT LengthEffect {
  std::int64_t length = 0, times = 0;
  // The first block's scores among the tokens of the first copy, from both inputs, relative to the largest.
  double score_change = 0;
  // The same for tokens of the second and the last copy: equal windows and phases have equal scores.
  double copy_difference = 0;
  double dilution = 0, dilution_deviation = 0;  // of log Z, over queries and heads; log(times) is predicted
  double changed = 0, logit_change = 0;         // as above; of the predictions at the first copy's tokens
};
// None for models with positions.
HKT_EXPORT std::optional<LengthEffect> length_effect(TransformerImpl& model, const at::Tensor& tokens,
                                                     std::int64_t times);

}  // namespace hkt::theory
