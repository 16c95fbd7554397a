// SPDX-License-Identifier: Apache-2.0
// The per-epoch theory metrics.
#include <ATen/ATen.h>

#include "head_statistics.h"
#include "normality.h"
#include "spectra.h"
#include "theory/lab.h"
#include "theory/walk.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

// One head over all sequences.
struct ProbedHead {
  json entry = json::object();
  std::vector<Summary> shares;
  std::vector<Normality> normality;

  explicit ProbedHead(std::size_t levels) : shares(levels), normality(levels) {}

  void add(const HeadScores& scores, const RowSampler& sampler, std::size_t sequence) {
    const auto own = mean_shares(scores);
    for (std::size_t l = 0; l < normality.size(); ++l) {
      if (!own.empty()) shares[l].add(own[l]);
      normality[l].add(sampler.rows(sequence, static_cast<std::int64_t>(l), scores.levels[l]));
    }
  }

  json to_json() const {
    auto result = entry;
    result["shares"] = result["normality"] = json::array();
    for (const auto& share : shares) result["shares"].push_back(share.mean());
    for (const auto& own : normality) result["normality"].push_back(own.to_json(false));
    return result;
  }
};

}  // namespace

nlohmann::ordered_json probe(const TransformerImpl& model, const std::vector<at::Tensor>& sequences) {
  const at::NoGradGuard no_grad;
  const auto& config = model.config();
  const auto exact = exact_copy(model);
  const RowSampler sampler(sequences, config.levels, {}, 0);
  std::vector<std::vector<ProbedHead>> heads(
      static_cast<std::size_t>(config.blocks),
      std::vector<ProbedHead>(static_cast<std::size_t>(config.heads),
                              ProbedHead(static_cast<std::size_t>(config.levels))));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    walk(*exact, sequences[i], [&](std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen) {
      for (std::int64_t head = 0; head < config.heads; ++head) {
        auto& own = heads[static_cast<std::size_t>(block)][static_cast<std::size_t>(head)];
        const auto scores = seen.head(attention, config, head);
        own.add(scores, sampler, i);
        if (i > 0) continue;  // eigenvalues are expensive: only of the first sequence
        const auto definite = definiteness(combined(scores, config.levels));
        own.entry = {{"spectrum", spectra_of(attention, head, false)},
                     {"scores_smallest_eigenvalue_share", definite.smallest_share},
                     {"scores_negative_energy", definite.negative_energy}};
      }
    });
  }
  json blocks = json::array();
  for (const auto& block : heads) {
    json all = json::array();
    for (const auto& head : block) all.push_back(head.to_json());
    blocks.push_back({{"heads", std::move(all)}});
  }
  return blocks;
}

}  // namespace hkt::theory
