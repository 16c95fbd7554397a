// SPDX-License-Identifier: Apache-2.0
// Collects the measurements over blocks, heads and sequences as JSON.
#include "theory/lab.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "hkt/ops.h"
#include "hkt/theory.h"
#include "theory/walk.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

constexpr double infinity = std::numeric_limits<double>::infinity();

// JSON has no infinities; a bound that does not exist is null.
json number(double value) { return std::isfinite(value) ? json(value) : json(); }

// Running mean, minimum and maximum.
struct Summary {
  double sum = 0, smallest = infinity, largest = -infinity;
  std::int64_t count = 0;

  void add(double value) {
    sum += value;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    ++count;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

// Samples rows of s(l) uniformly from the sequences that are long enough; the seed decides which.
class RowSampler {
 public:
  RowSampler(const std::vector<at::Tensor>& sequences, std::int64_t levels, std::int64_t samples, std::int64_t columns,
             std::int64_t seed)
      : columns_(columns) {
    std::mt19937_64 generator(static_cast<std::uint64_t>(seed));
    for (std::int64_t level = 0; level < levels; ++level) {
      std::vector<std::pair<std::size_t, std::int64_t>> all;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::int64_t length = sequences[i].size(0);
        if (length < columns << level) continue;
        const std::int64_t rows = level_rows(length, level);
        for (std::int64_t row = 0; row < rows; ++row) all.emplace_back(i, row);
      }
      std::shuffle(all.begin(), all.end(), generator);
      all.resize(std::min<std::size_t>(all.size(), static_cast<std::size_t>(samples)));
      std::vector<std::vector<std::int64_t>> chosen(sequences.size());
      for (const auto& [sequence, row] : all) chosen[sequence].push_back(row);
      chosen_.push_back(std::move(chosen));
    }
  }

  // The chosen rows of a sequence's scores at a level; undefined if there are none.
  at::Tensor rows(std::size_t sequence, std::int64_t level, const at::Tensor& scores) const {
    const auto& own = chosen_[static_cast<std::size_t>(level)][sequence];
    if (own.empty()) return {};
    return scores.narrow(1, 0, columns_).index_select(0, at::tensor(own, at::kLong));
  }

 private:
  std::int64_t columns_;
  std::vector<std::vector<std::vector<std::int64_t>>> chosen_;  // by level, by sequence
};

json to_json(const Spectrum& spectrum, bool with_eigenvalues) {
  json result = {{"negative_energy", spectrum.negative_energy},
                 {"smallest_over_largest", spectrum.smallest_over_largest},
                 {"semidefinite", spectrum.is_semidefinite}};
  if (with_eigenvalues) result["eigenvalues"] = spectrum.eigenvalues;
  return result;
}

json to_json(const Mardia& test, bool with_component) {
  json result = {{"samples", test.samples}, {"dimensions", test.dimensions}};
  if (!test.trouble.empty()) {
    result["trouble"] = test.trouble;
    return result;
  }
  result["skewness"] = test.skewness;
  result["kurtosis"] = test.kurtosis;
  result["gaussian_kurtosis"] = test.gaussian_kurtosis;
  result["skewness_p"] = test.skewness_p;
  result["kurtosis_p"] = test.kurtosis_p;
  if (with_component) result["first_component"] = test.first_component;
  return result;
}

Mardia test_of(const std::vector<at::Tensor>& rows) {
  if (!rows.empty()) return mardia(at::cat(rows));
  Mardia nothing;
  nothing.trouble = "no sequence is long enough";
  return nothing;
}

// The statistics of one head of one block, accumulated over sequences.
struct HeadStatistics {
  Summary eigenvalue_share, commutation, independence, identity_error, excess;
  std::int64_t independent_matrices = 0;
  std::vector<Summary> directionality, kl, gaussian, non_gaussian, remainder, hoeffding, weight_bound, geometric;
  std::vector<std::vector<at::Tensor>> rows;  // of scores, by level
  std::vector<double> weights;
  double decay = 0, constant = 0;

  explicit HeadStatistics(std::size_t levels)
      : directionality(levels),
        kl(levels),
        gaussian(levels),
        non_gaussian(levels),
        remainder(levels),
        hoeffding(levels),
        weight_bound(levels),
        geometric(levels),
        rows(levels) {}

  void add(const HeadScores& head) {
    weights = head.weights;
    const auto levels = static_cast<std::int64_t>(head.levels.size());
    eigenvalue_share.add(smallest_eigenvalue_share(combined(head, levels)));
    for (std::size_t l = 0; l < head.levels.size(); ++l) directionality[l].add(theory::directionality(head.levels[l]));
    const auto independent = theory::independence(head);
    independent_matrices = std::max(independent_matrices, independent.matrices);
    independence.add(independent.smallest_eigenvalue);
    const auto depth = depth_error(head);
    decay = depth.decay;
    constant = depth.constant;
    for (std::size_t l = 0; l < depth.errors.size(); ++l) {
      const auto& error = depth.errors[l];
      kl[l].add(error.kl);
      gaussian[l].add(error.gaussian);
      non_gaussian[l].add(error.non_gaussian);
      remainder[l].add(error.remainder);
      hoeffding[l].add(error.hoeffding);
      weight_bound[l].add(error.weight_bound);
      geometric[l].add(error.geometric);
      identity_error.add(error.identity_error);
      excess.add(error.worst_excess);
    }
  }

  json to_json() const {
    json levels = json::array(), depths = json::array();
    for (std::size_t l = 0; l < directionality.size(); ++l) {
      levels.push_back({{"level", l},
                        {"weight", weights[l]},
                        {"directionality", directionality[l].mean()},
                        {"gaussianity", theory::to_json(test_of(rows[l]), true)}});
      depths.push_back({{"kept", l + 1},
                        {"kl", kl[l].mean()},
                        {"gaussian", gaussian[l].mean()},
                        {"non_gaussian", non_gaussian[l].mean()},
                        {"remainder", remainder[l].mean()},
                        {"hoeffding", hoeffding[l].mean()},
                        {"weight_bound", weight_bound[l].mean()},
                        {"geometric", number(geometric[l].mean())}});
    }
    return {{"scores_smallest_eigenvalue_share", eigenvalue_share.smallest},
            {"commutation_error", commutation.largest},
            {"independence", {{"matrices", independent_matrices}, {"smallest_eigenvalue", independence.smallest}}},
            {"levels", levels},
            {"decay", {{"rho", decay}, {"constant", constant}}},
            {"depth", depths},
            {"depth_identity_error", identity_error.largest},
            {"depth_worst_excess", excess.largest}};
  }
};

// Whether the scores of a level are X(l) M X(l)ᵀ: neither rotations nor filters come between inputs and scores.
bool has_bilinear_form(const ModelConfig& config) {
  return config.positions != Positions::rotary && config.filter_on == FilterOn::input;
}

json spectra_of(const HierarchicalAttentionImpl& attention, std::int64_t head, std::int64_t levels, bool per_level,
                bool with_eigenvalues) {
  json all = json::array();
  for (std::int64_t level = 0; level < (per_level ? levels : 1); ++level) {
    const auto [query, key] = attention.projections(level);
    all.push_back(to_json(kernel_spectrum(query[head], key[head]), with_eigenvalues));
  }
  return all;
}

}  // namespace

nlohmann::ordered_json examine(const TransformerImpl& model, const std::vector<at::Tensor>& sequences,
                               const LabOptions& options) {
  const at::NoGradGuard no_grad;
  const auto& config = model.config();
  const auto exact = exact_copy(model);
  const auto levels = static_cast<std::size_t>(config.levels);
  const RowSampler sampler(sequences, config.levels, options.gaussian_samples, options.gaussian_columns, options.seed);
  std::vector<std::vector<HeadStatistics>> statistics(
      static_cast<std::size_t>(config.blocks),
      std::vector<HeadStatistics>(static_cast<std::size_t>(config.heads), HeadStatistics(levels)));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    walk(*exact, sequences[i], [&](std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen) {
      for (std::int64_t head = 0; head < config.heads; ++head) {
        auto& own = statistics[static_cast<std::size_t>(block)][static_cast<std::size_t>(head)];
        const auto scores = seen.head(attention, config, head);
        own.add(scores);
        for (std::int64_t level = 0; level < config.levels; ++level) {
          const auto rows = sampler.rows(i, level, scores.levels[static_cast<std::size_t>(level)]);
          if (rows.defined()) own.rows[static_cast<std::size_t>(level)].push_back(rows);
          if (!has_bilinear_form(config)) continue;
          const auto [query, key] = attention.projections(level);
          own.commutation.add(commutation_error(seen.inputs[static_cast<std::size_t>(level)], query[head], key[head],
                                                level, sequences[i].size(0)));
        }
      }
    });
    if (options.progress)
      options.progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(sequences.size()));
  }

  json blocks = json::array();
  std::int64_t index = 0;
  for (const auto& module : *exact->blocks) {
    const auto& attention = *module->as<Block>()->attention;
    json heads = json::array();
    for (std::int64_t head = 0; head < config.heads; ++head) {
      json entry = {{"head", head}};
      entry["spectrum"] =
          spectra_of(attention, head, config.levels, config.projections == Projections::per_level, true);
      entry.update(statistics[static_cast<std::size_t>(index)][static_cast<std::size_t>(head)].to_json());
      if (!has_bilinear_form(config)) entry["commutation_error"] = nullptr;
      heads.push_back(std::move(entry));
    }
    blocks.push_back({{"block", index++}, {"heads", std::move(heads)}});
  }
  const auto contained = subsumption(options.seed);
  return {{"blocks", std::move(blocks)},
          {"subsumption",
           {{"standard_error", contained.standard_error},
            {"convolution_error", contained.convolution_error},
            {"rank", contained.rank},
            {"head_width", contained.head_width},
            {"levels", contained.levels}}}};
}

nlohmann::ordered_json probe(const TransformerImpl& model, const std::vector<at::Tensor>& sequences) {
  constexpr std::int64_t samples = 256, columns = 32;
  const at::NoGradGuard no_grad;
  const auto& config = model.config();
  const auto exact = exact_copy(model);
  const RowSampler sampler(sequences, config.levels, samples, columns, 0);
  json blocks = json::array();
  for (std::int64_t block = 0; block < config.blocks; ++block) {
    json heads = json::array();
    for (std::int64_t head = 0; head < config.heads; ++head) heads.push_back(json::object());
    blocks.push_back({{"heads", std::move(heads)}});
  }
  using Rows = std::vector<std::vector<at::Tensor>>;  // by level
  std::vector<std::vector<Rows>> rows(
      static_cast<std::size_t>(config.blocks),
      std::vector<Rows>(static_cast<std::size_t>(config.heads), Rows(static_cast<std::size_t>(config.levels))));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    walk(*exact, sequences[i], [&](std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen) {
      for (std::int64_t head = 0; head < config.heads; ++head) {
        const auto scores = seen.head(attention, config, head);
        auto& own = rows[static_cast<std::size_t>(block)][static_cast<std::size_t>(head)];
        for (std::int64_t level = 0; level < config.levels; ++level) {
          const auto chosen = sampler.rows(i, level, scores.levels[static_cast<std::size_t>(level)]);
          if (chosen.defined()) own[static_cast<std::size_t>(level)].push_back(chosen);
        }
        if (i > 0) continue;  // eigenvalues are expensive: only of the first sequence
        auto& entry = blocks[static_cast<std::size_t>(block)]["heads"][static_cast<std::size_t>(head)];
        entry["spectrum"] =
            spectra_of(attention, head, config.levels, config.projections == Projections::per_level, false);
        entry["scores_smallest_eigenvalue_share"] = smallest_eigenvalue_share(combined(scores, config.levels));
      }
    });
  }
  for (std::size_t block = 0; block < rows.size(); ++block)
    for (std::size_t head = 0; head < rows[block].size(); ++head) {
      json levels = json::array();
      for (const auto& own : rows[block][head]) levels.push_back(to_json(test_of(own), false));
      blocks[block]["heads"][head]["gaussianity"] = std::move(levels);
    }
  return blocks;
}

}  // namespace hkt::theory
