// SPDX-License-Identifier: Apache-2.0
// The verdict on each claim, and its sentence.
#include "theory/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

constexpr double exact = 1e-9;  // relative errors below this count as rounding
constexpr double significance = 0.05;

// Calls visit(head) with the entry of each head of each block.
void for_heads(const json& examination, const std::function<void(const json&)>& visit) {
  for (const auto& block : examination["blocks"])
    for (const auto& head : block["heads"]) visit(head);
}

Claim titled(const std::string& key, const std::string& paper, const std::string& title) {
  Claim claim;
  claim.key = key;
  claim.paper = paper;
  claim.title = title;
  return claim;
}

Claim semidefinite(const json& examination, const ModelConfig& config) {
  Claim claim = titled("psd", "Proposition 3.1",
                       "The symmetrised scores form a positive semidefinite kernel if B is positive semidefinite");
  std::int64_t kernels = 0, definite = 0;
  double energy = 0, smallest = 0;
  bool implied = true;
  for_heads(examination, [&](const json& head) {
    bool all = true;
    for (const auto& spectrum : head["spectrum"]) {
      ++kernels;
      definite += spectrum["semidefinite"].get<bool>();
      all = all && spectrum["semidefinite"].get<bool>();
      energy += spectrum["negative_energy"].get<double>();
    }
    const double share = head["scores_smallest_eigenvalue_share"];
    smallest = std::min(smallest, share);
    if (all && share < -exact) implied = false;
  });
  energy /= static_cast<double>(std::max<std::int64_t>(1, kernels));
  if (config.positions == Positions::rotary && config.psd != Psd::tied) {
    claim.sentence = fmt::format(
        "With rotary positions the bilinear form depends on the distance, so the condition on B does not apply; on "
        "real inputs the smallest eigenvalue of the symmetrised scores is {:.3f} times the largest in magnitude.",
        smallest);
    return claim;
  }
  claim.verdict = implied && definite == kernels ? Verdict::holds : Verdict::fails;
  if (definite == kernels) {
    claim.sentence = fmt::format(
        "B is positive semidefinite in all {} kernels, and on real inputs the smallest eigenvalue of the symmetrised "
        "scores is {:.1e} times the largest in magnitude.",
        kernels, smallest);
  } else {
    claim.sentence = fmt::format(
        "The condition is met by {} of {} kernels: on average {:.1f} % of B's spectral energy is negative, and on real "
        "inputs the smallest eigenvalue of the symmetrised scores is {:.3f} times the largest in magnitude. Free "
        "projections of several heads never meet it.",
        definite, kernels, 100 * energy, smallest);
  }
  return claim;
}

Claim decomposition(const json& examination, const ModelConfig& config) {
  Claim claim = titled(
      "decomposition", "Propositions 3.5 and 3.6",
      "At each level scores split into a reciprocal and a directional part, and downsampling preserves the split");
  double worst = 0, independence = 1, lowest = 1, highest = 0;
  for_heads(examination, [&](const json& head) {
    if (!head["commutation_error"].is_null()) worst = std::max(worst, head["commutation_error"].get<double>());
    independence = std::min(independence, head["independence"]["smallest_eigenvalue"].get<double>());
    for (const auto& level : head["levels"]) {
      lowest = std::min(lowest, level["directionality"].get<double>());
      highest = std::max(highest, level["directionality"].get<double>());
    }
  });
  claim.verdict = worst < exact && independence > 0 ? Verdict::holds : Verdict::fails;
  const auto commutes = config.positions == Positions::rotary || config.filter_on == FilterOn::projected
                            ? std::string(
                                  "With rotary positions, or filters on queries and keys, there is no single "
                                  "bilinear form to symmetrise")
                            : fmt::format("Symmetrising commutes with downsampling and upsampling to {:.1e}", worst);
  claim.sentence = fmt::format(
      "{}; the directional part is {:.1f} to {:.1f} % of a level's squared norm, and the smallest eigenvalue of the "
      "Gram matrix of all parts is {:.1e} (above 0: they are linearly independent).",
      commutes, 100 * lowest, 100 * highest, independence);
  return claim;
}

Claim subsumption(const json& examination) {
  Claim claim =
      titled("subsumption", "Proposition 3.4", "HKT contains standard attention and causal convolution, strictly");
  const auto& found = examination["subsumption"];
  const double standard = found["standard_error"], convolution = found["convolution_error"];
  const std::int64_t rank = found["rank"], width = found["head_width"];
  claim.verdict = standard < exact && convolution < exact && rank > width ? Verdict::holds : Verdict::fails;
  claim.sentence = fmt::format(
      "With constructed weights the module equals standard attention (error {:.1e}) and a convolution with taps of "
      "both signs (error {:.1e}); its scores reach rank {} with heads of width {}.",
      standard, convolution, rank, width);
  return claim;
}

Claim depth(const json& examination, const ModelConfig& config) {
  Claim claim = titled("depth", "results 4.3 and 4.4",
                       "Dropping levels costs a KL divergence that has three parts and decays with the levels kept");
  if (config.levels < 2) {
    claim.sentence = "The model has one level, so there is no level to drop.";
    return claim;
  }
  double identity = 0, excess = -1, first = 0, last = 0;
  std::int64_t heads = 0, decaying = 0;
  for_heads(examination, [&](const json& head) {
    identity = std::max(identity, head["depth_identity_error"].get<double>());
    excess = std::max(excess, head["depth_worst_excess"].get<double>());
    decaying += head["decay"]["rho"].get<double>() < 1;
    first += head["depth"][0]["kl"].get<double>();
    last += head["depth"][config.levels - 2]["kl"].get<double>();
    ++heads;
  });
  claim.verdict = identity < exact && excess < exact ? Verdict::holds : Verdict::fails;
  claim.sentence = fmt::format(
      "The identity holds to {:.1e} and {}; keeping only level 0 costs {:.4f} nats on average{}, and the level weights "
      "decay in {} of {} heads.",
      identity,
      excess < exact ? "no row exceeds its bounds" : fmt::format("a row exceeds its bounds by {:.1e}", excess),
      first / static_cast<double>(heads),
      config.levels > 2 ? fmt::format(", keeping all but the last {:.4f}", last / static_cast<double>(heads)) : "",
      decaying, heads);
  return claim;
}

Claim gaussianity(const json& examination) {
  Claim claim = titled("gaussianity", "figures 2 and 3", "Scores are nearly Gaussian");
  std::int64_t tests = 0, kept_skewness = 0, kept_kurtosis = 0, fewest = 0;
  double ratio = 0;
  for_heads(examination, [&](const json& head) {
    for (const auto& level : head["levels"]) {
      const auto& test = level["gaussianity"];
      if (test.contains("trouble")) continue;
      ++tests;
      kept_skewness += test["skewness_p"].get<double>() >= significance;
      kept_kurtosis += test["kurtosis_p"].get<double>() >= significance;
      ratio += kurtosis_ratio(test).value();
      const std::int64_t samples = test["samples"];
      fewest = fewest == 0 ? samples : std::min(fewest, samples);
    }
  });
  if (tests == 0) {
    claim.sentence = "No sequence is long enough for a test.";
    return claim;
  }
  claim.verdict = 2 * kept_skewness >= tests && 2 * kept_kurtosis >= tests ? Verdict::holds : Verdict::fails;
  claim.sentence = fmt::format(
      "Mardia's tests at the 5 % level, with at least {} samples each, do not reject normality by skewness for {} and "
      "by kurtosis for {} of {} pairs of head and level; on average the kurtosis is {:.2f} times the Gaussian value.",
      fewest, kept_skewness, kept_kurtosis, tests, ratio / static_cast<double>(tests));
  return claim;
}

}  // namespace

std::string name(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::fails:
      return "does not hold";
    case Verdict::open:
      return "not decided";
  }
  return {};
}

std::vector<Claim> claims_of(const nlohmann::ordered_json& examination, const ModelConfig& config) {
  return {semidefinite(examination, config), decomposition(examination, config), subsumption(examination),
          depth(examination, config), gaussianity(examination)};
}

std::optional<double> kurtosis_ratio(const json& gaussianity) {
  const auto kurtosis = gaussianity.find("kurtosis");
  if (kurtosis == gaussianity.end() || !kurtosis->is_number()) return {};
  return kurtosis->get<double>() / gaussianity["gaussian_kurtosis"].get<double>();
}

}  // namespace hkt::theory
