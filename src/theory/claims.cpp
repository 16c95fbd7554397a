// SPDX-License-Identifier: Apache-2.0
// The rule of each claim, the verdict by it, and its sentence.
#include "theory/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "hkt/theory.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

constexpr double exact = 1e-9;  // relative errors below this count as rounding
constexpr double significance = 0.05;
constexpr double clear_gap = 1e-6;       // between outputs that should be equal, were attention equivariant
constexpr double dilution_error = 0.05;  // in log Z, for windows that cross from one copy of the input to the next

// Calls visit(head) with the entry of each head of each block.
void for_heads(const json& examination, const std::function<void(const json&)>& visit) {
  for (const auto& block : examination["blocks"])
    for (const auto& head : block["heads"]) visit(head);
}

// The verdict on a theorem, whose numbers can only agree or show an error of the program.
Verdict theorem(bool agrees) { return agrees ? Verdict::proved : Verdict::fails; }
Verdict decided(bool holds) { return holds ? Verdict::holds : Verdict::fails; }

bool is_semidefinite_by_construction(const ModelConfig& config) { return config.psd != Psd::free; }

bool has_bilinear_form(const ModelConfig& config) {
  return config.positions != Positions::rotary && config.filter_on == FilterOn::input;
}

bool applies_to(const ModelConfig& config) {
  return has_bilinear_form(config) || is_semidefinite_by_construction(config);
}

constexpr const char* no_bilinear_form =
    "With rotary positions, or filters on queries and keys, scores are not one bilinear form of a level's inputs";

// ---- 1. the kernel

Claim condition(const json& examination, const ModelConfig& config) {
  Claim claim = {.key = "psd",
                 .paper = "Proposition 3.1",
                 .title = "The kernel B is positive semidefinite",
                 .rule = "holds if B ⪰ 0 in every kernel, up to 1e-10 of its largest eigenvalue"};
  std::int64_t kernels = 0, definite = 0;
  double energy = 0, scores = 0, heads = 0;
  for_heads(examination, [&](const json& head) {
    for (const auto& spectrum : head["spectrum"]) {
      ++kernels;
      definite += spectrum["semidefinite"].get<bool>();
      energy += spectrum["negative_energy"].get<double>();
    }
    scores += head["scores_negative_energy"].get<double>();
    ++heads;
  });
  const auto on_inputs = fmt::format(
      "on these inputs {:.1f} % of the spectral energy of the symmetrised scores is "
      "negative",
      100 * scores / std::max(1.0, heads));
  if (!applies_to(config)) {
    claim.sentence = fmt::format("{}, so the condition on B does not apply; {}.", no_bilinear_form, on_inputs);
    return claim;
  }
  claim.verdict = decided(definite == kernels);
  claim.sentence = fmt::format(
      "{} of {} kernels meet the condition{}; on average {:.1f} % of B's spectral energy is "
      "negative, and {}.",
      definite, kernels, is_semidefinite_by_construction(config) ? ", as this parametrisation makes sure" : "",
      100 * energy / static_cast<double>(std::max<std::int64_t>(1, kernels)), on_inputs);
  if (config.psd == Psd::free && config.heads > 1)
    claim.sentence += " Free projections of several heads never meet it.";
  return claim;
}

Claim implication(const json& examination, const ModelConfig& config) {
  Claim claim = {
      .key = "psd-implication",
      .paper = "Proposition 3.1",
      .title = "If B is positive semidefinite, so are the symmetrised scores of every input",
      .rule = "a theorem; fails if a head with B ⪰ 0 has scores with an eigenvalue below −1e-9 of the largest"};
  std::int64_t heads = 0;
  double smallest = 0;
  for_heads(examination, [&](const json& head) {
    const auto& kernels = head["spectrum"];
    const auto is_definite = [](const json& spectrum) { return spectrum["semidefinite"].get<bool>(); };
    if (!std::all_of(kernels.begin(), kernels.end(), is_definite)) return;
    ++heads;
    smallest = std::min(smallest, head["scores_smallest_eigenvalue_share"].get<double>());
  });
  if (heads == 0 || !applies_to(config)) {
    claim.sentence = "No head of this model meets the condition, so its scores say nothing about the implication.";
    return claim;
  }
  claim.verdict = theorem(smallest > -exact);
  claim.sentence = fmt::format(
      "{} heads meet the condition; the smallest eigenvalue of their scores is {:.1e} times the "
      "largest in magnitude.",
      heads, smallest);
  return claim;
}

// ---- 2. reciprocal and directional attention

// The smallest and the largest of the values that are there.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(const json& value) {
    if (value.is_null()) return;
    low = std::min(low, value.get<double>());
    high = std::max(high, value.get<double>());
  }
};

Claim decomposition(const json& examination, const ModelConfig& config) {
  Claim claim = {.key = "decomposition",
                 .paper = "Propositions 3.5 and 3.6",
                 .title = "Scores split into a reciprocal and a directional part, and downsampling preserves the split",
                 .rule = "a theorem; fails if the module's own scores differ from those of B by more than 1e-9"};
  double worst = 0;
  Range directional, curl;
  for_heads(examination, [&](const json& head) {
    if (!head["commutation_error"].is_null()) worst = std::max(worst, head["commutation_error"].get<double>());
    curl.add(head["curl_share"]);
    for (const auto& level : head["levels"]) directional.add(level["directionality"]);
  });
  auto parts = fmt::format("the directional part is {:.1f} to {:.1f} % of a level's squared norm",
                           100 * directional.low, 100 * directional.high);
  if (curl.low <= curl.high) {
    parts += fmt::format(
        "; {:.0f} to {:.0f} % of it, in a head's scores, is curl, and the rest a bias of the key that "
        "softmax cannot tell from one",
        100 * curl.low, 100 * curl.high);
  }
  if (!has_bilinear_form(config)) {
    claim.sentence = fmt::format("{}, so there is no B to compare with; {}.", no_bilinear_form, parts);
    return claim;
  }
  claim.verdict = theorem(worst < exact);
  claim.sentence =
      fmt::format("Symmetrising the module's scores and symmetrising its kernel agree to {:.1e}; {}.", worst, parts);
  return claim;
}

Claim independence(const json& examination, const ModelConfig& config) {
  Claim claim = {.key = "independence",
                 .paper = "Propositions 3.5 and 3.6",
                 .title = "The reciprocal and directional parts of all levels are linearly independent",
                 .rule =
                     "holds if in every head all 2L parts are there and the smallest eigenvalue of the Gram matrix of "
                     "the normalised parts is above 1e-9"};
  if (config.psd == Psd::tied) {
    claim.sentence = "Tied projections have no directional part.";
    return claim;
  }
  double smallest = 1;
  std::int64_t fewest = 2 * config.levels;
  for_heads(examination, [&](const json& head) {
    smallest = std::min(smallest, head["independence"]["smallest_eigenvalue"].get<double>());
    fewest = std::min(fewest, head["independence"]["matrices"].get<std::int64_t>());
  });
  claim.verdict = decided(fewest == 2 * config.levels && smallest > exact);
  claim.sentence = fmt::format("Of {} parts at least {} are not zero, and the smallest eigenvalue is {:.1e}.",
                               2 * config.levels, fewest, smallest);
  return claim;
}

// ---- 3. subsumption

Claim subsumption(const json& examination) {
  Claim claim = {.key = "subsumption",
                 .paper = "Proposition 3.4",
                 .title = "HKT contains standard attention",
                 .rule =
                     "a theorem; fails if this model's attention, with zero filters and M/λ₀, differs from standard "
                     "attention by more than 1e-9"};
  double worst = 0;
  for (const auto& block : examination["blocks"]) {
    const auto& error = block["containment"]["standard_attention_error"];
    if (error.is_null()) {
      claim.sentence =
          "This model's filters are constants, or a level 0 has no weight, so it has no such special case.";
      return claim;
    }
    worst = std::max(worst, error.get<double>());
  }
  claim.verdict = theorem(worst < exact);
  claim.sentence = fmt::format(
      "With zero filters and M/λ₀ every block of this model equals standard attention with its "
      "own projections, to {:.1e}.",
      worst);
  return claim;
}

Claim strictness(const json& examination, const ModelConfig& config) {
  Claim claim = {
      .key = "strictness",
      .paper = "Proposition 3.4",
      .title = "This model's attention is not standard attention",
      .rule =
          "holds if in every block a head's row-centred scores have a rank above its width, or the module is not "
          "equivariant: reversing the tokens changes its output by more than 1e-6"};
  if (config.levels < 2) {
    claim.sentence = "The model has one level: it is standard attention.";
    return claim;
  }
  bool all = true;
  std::int64_t rank = 0;
  Range gaps;
  for (const auto& block : examination["blocks"]) {
    std::int64_t own = 0;
    for (const auto& head : block["heads"])
      if (!head["centred_rank"].is_null()) own = std::max(own, head["centred_rank"].get<std::int64_t>());
    const auto& gap = block["containment"]["equivariance_gap"];
    gaps.add(gap);
    all = all && (own > config.head_width() || (!gap.is_null() && gap.get<double>() > clear_gap));
    rank = std::max(rank, own);
  }
  claim.verdict = decided(all);
  claim.sentence = fmt::format("Row-centred scores reach rank {} with heads of width {}", rank, config.head_width());
  claim.sentence +=
      gaps.low <= gaps.high
          ? fmt::format(
                "; reversing the tokens changes the output by {:.2g} to {:.2g} of its norm, where standard "
                "attention only reverses it.",
                gaps.low, gaps.high)
          : ".";
  return claim;
}

// ---- 4. depth

Claim depth(const json& examination, const ModelConfig& config) {
  Claim claim = {.key = "depth",
                 .paper = "results 4.3 and 4.4",
                 .title = "Dropping levels costs a KL divergence that has three parts and known bounds",
                 .rule = "a theorem; fails if the identity or a row's bound is off by more than 1e-9 · (1 + max |δ|)"};
  if (config.levels < 2) {
    claim.sentence = "The model has one level, so there is no level to drop.";
    return claim;
  }
  double identity = 0, excess = -1, kl = 0, tilted = 0, hoeffding = 0;
  std::int64_t heads = 0;
  for_heads(examination, [&](const json& head) {
    identity = std::max(identity, head["depth_identity_error"].get<double>());
    excess = std::max(excess, head["depth_worst_excess"].get<double>());
    kl += head["depth"][0]["kl"].get<double>();
    tilted += head["depth"][0]["tilted"].get<double>();
    hoeffding += head["depth"][0]["hoeffding"].get<double>();
    ++heads;
  });
  const auto count = static_cast<double>(heads);
  claim.verdict = theorem(identity < exact && excess < exact);
  claim.sentence = fmt::format(
      "The identity holds to {:.1e} and {}; keeping only level 0, renormalised, costs {:.3f} nats on average, half the "
      "largest variance along the path is {:.3f} and Hoeffding's bound {:.1f}.",
      identity,
      excess < exact ? "no row exceeds its bounds" : fmt::format("a row exceeds its bounds by {:.1e}", excess),
      kl / count, tilted / count, hoeffding / count);
  return claim;
}

Claim decay(const json& examination, const ModelConfig& config) {
  Claim claim = {.key = "decay",
                 .paper = "results 4.3 and 4.4",
                 .title = "The contribution of levels decays geometrically",
                 .rule = "holds if in every head λ_l · range(s(l)), fitted by c ρ^l, has ρ < 1"};
  if (config.levels < 2) {
    claim.sentence = "The model has one level, so there is no decay.";
    return claim;
  }
  std::int64_t heads = 0, decaying = 0;
  Range fitted;
  for_heads(examination, [&](const json& head) {
    const double rho = head["reach_decay"]["rho"];
    fitted.add(rho);
    decaying += rho < 1;
    ++heads;
  });
  claim.verdict = decided(decaying == heads);
  claim.sentence =
      fmt::format("It does in {} of {} heads, with ρ from {:.2g} to {:.2g}.", decaying, heads, fitted.low, fitted.high);
  return claim;
}

// ---- 5. Gaussian scores

Claim gaussianity(const json& examination) {
  Claim claim = {
      .key = "gaussianity",
      .paper = "figures 2 and 3",
      .title = "Scores are Gaussian",
      .rule =
          "fails if a p-value, of Mardia's tests within each sequence combined by Fisher's method and corrected for "
          "the number of tests by Holm's, is below 0.05; never holds, because no test can show it"};
  std::vector<double> skewness, kurtosis;
  double ratio = 0;
  for_heads(examination, [&](const json& head) {
    for (const auto& level : head["levels"]) {
      const auto& test = level["normality"];
      if (test.contains("trouble")) continue;
      skewness.push_back(test["skewness_p"]);
      kurtosis.push_back(test["kurtosis_p"]);
      ratio += kurtosis_ratio(test).value();
    }
  });
  if (skewness.empty()) {
    claim.sentence = "No sequence is long enough for a test.";
    return claim;
  }
  auto both = skewness;
  both.insert(both.end(), kurtosis.begin(), kurtosis.end());
  const auto corrected = holm(both);
  const auto tests = std::ssize(skewness);
  const auto rejected = [&](std::int64_t begin) {
    return std::count_if(corrected.begin() + begin, corrected.begin() + begin + tests,
                         [](double p) { return p < significance; });
  };
  claim.verdict = rejected(0) + rejected(tests) > 0 ? Verdict::fails : Verdict::open;
  claim.sentence = fmt::format(
      "Mardia's tests, made within each sequence and corrected for their number, reject normality by skewness for {} "
      "and by "
      "kurtosis for {} of {} pairs of head and level; on average the kurtosis is {:.2f} times the Gaussian value.",
      rejected(0), rejected(tests), tests, ratio / static_cast<double>(tests));
  return claim;
}

// ---- 6. cost, phase, length

Claim cost(const json& examination, const ModelConfig& config) {
  Claim claim = {
      .key = "cost",
      .paper = "abstract",
      .title = "Scores cost at most 4/3 of standard attention's",
      .rule = "holds if on every input the multiply-adds of all levels' scores are at most 4/3 of level 0's"};
  const auto& found = examination["cost"];
  const double largest = found["scores"]["largest"];
  claim.verdict = decided(largest <= 4.0 / 3 + exact);
  claim.sentence = fmt::format(
      "On these inputs scores take {:.4f} times standard attention's multiply-adds on average and at most {:.4f} "
      "times; a layer "
      "with its projections, filters and values takes {:.3f} times, and at T = {} {:.3f} times.",
      found["scores"]["mean"].get<double>(), largest, found["layer"]["mean"].get<double>(), config.max_length,
      found["at_max_length"]["layer"].get<double>());
  return claim;
}

Claim phase(const json& examination) {
  Claim claim = {
      .key = "phase",
      .paper = "not in the paper",
      .title = "Predictions do not depend on where the coarse grids begin",
      .rule =
          "holds if no prediction changes under any shift of the grids; fails, too, if a shift by 2^(L−1) changes "
          "logits by more than 1e-9, which is a theorem"};
  const auto& shifts = examination["phase"];
  if (shifts.empty()) {
    claim.sentence = "The model has one level and no coarse grid, or its inputs are too short.";
    return claim;
  }
  double changed = 0, logits = 0;
  for (const auto& shift : shifts) {
    changed = std::max(changed, shift["changed"].get<double>());
    logits = std::max(logits, shift["logit_change"].get<double>());
  }
  const double period = shifts.back()["largest_logit_change"];
  claim.verdict = decided(changed == 0 && period < exact);
  claim.sentence = fmt::format(
      "Shifting the grids by less than 2^(L−1) = {} tokens changes up to {:.1f} % of the predictions and logits by "
      "{:.2g} of the "
      "largest; shifting by {} changes them by {:.1e}. {} sequences.",
      shifts.back()["shift"].get<std::int64_t>(), 100 * changed, logits, shifts.back()["shift"].get<std::int64_t>(),
      period, shifts.back()["sequences"].get<std::int64_t>());
  return claim;
}

Claim length(const json& examination) {
  Claim claim = {
      .key = "length",
      .paper = "not in the paper",
      .title = "Without positions and mask a longer input changes only the softmax's dilution",
      .rule =
          "holds if, on input repeated to four times the training length, scores of equal windows and phases agree to "
          "1e-9 and log Z of the first block grows by the logarithm of the number of copies, to 0.05"};
  const auto& found = examination["length"];
  if (found.is_null()) {
    claim.sentence = "The model has positions or a causal mask, or its inputs are too short.";
    return claim;
  }
  double scores = 0, error = 0, changed = 0;
  for (const auto& one : found) {
    scores = std::max({scores, one["score_change"].get<double>(), one["copy_difference"].get<double>()});
    error = std::max(error, std::abs(one["dilution"].get<double>() - one["predicted_dilution"].get<double>()));
    changed += one["changed"].get<double>();
  }
  const auto& first = found.front();
  claim.verdict = decided(scores < exact && error < dilution_error);
  claim.sentence = fmt::format(
      "{} tokens, repeated {} times: scores agree to {:.1e}, and log Z grows by {:.3f} ± {:.3f} where {:.3f} is "
      "predicted; {:.0f} of {} "
      "predictions change.",
      first["length"].get<std::int64_t>(), first["times"].get<std::int64_t>(), scores, first["dilution"].get<double>(),
      first["dilution_deviation"].get<double>(), first["predicted_dilution"].get<double>(), changed, found.size());
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
    case Verdict::proved:
      return "proved";
  }
  return {};
}

std::vector<Claim> claims_of(const nlohmann::ordered_json& examination, const ModelConfig& config) {
  return {condition(examination, config),
          implication(examination, config),
          decomposition(examination, config),
          independence(examination, config),
          subsumption(examination),
          strictness(examination, config),
          depth(examination, config),
          decay(examination, config),
          gaussianity(examination),
          cost(examination, config),
          phase(examination),
          length(examination)};
}

std::optional<double> kurtosis_ratio(const json& normality) {
  if (const auto ratio = normality.find("kurtosis_ratio"); ratio != normality.end() && ratio->is_number())
    return ratio->get<double>();
  const auto kurtosis = normality.find("kurtosis");
  if (kurtosis == normality.end() || !kurtosis->is_number()) return {};
  return kurtosis->get<double>() / normality["gaussian_kurtosis"].get<double>();
}

}  // namespace hkt::theory
