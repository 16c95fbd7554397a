// SPDX-License-Identifier: Apache-2.0
// Collects the measurements over blocks, heads and sequences as JSON.
#include "theory/lab.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "head_statistics.h"
#include "hkt/theory.h"
#include "normality.h"
#include "spectra.h"
#include "theory/walk.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

// Whether the scores of a level are X(l) M X(l)ᵀ: neither rotations nor filters come between inputs and scores.
bool has_bilinear_form(const ModelConfig& config) {
  return config.positions != Positions::rotary && config.filter_on == FilterOn::input;
}

// Everything that is measured on scores.
class ScoreExamination {
 public:
  ScoreExamination(const ModelConfig& config, const std::vector<at::Tensor>& sequences, const LabOptions& options)
      : config_(config),
        sampler_(sequences, config.levels, {options.gaussian_samples, options.gaussian_columns}, options.seed),
        statistics_(static_cast<std::size_t>(config.blocks),
                    std::vector<HeadStatistics>(static_cast<std::size_t>(config.heads),
                                                HeadStatistics(static_cast<std::size_t>(config.levels)))) {}

  void add(std::size_t sequence, std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen) {
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      auto& own = statistics_[static_cast<std::size_t>(block)][static_cast<std::size_t>(head)];
      const auto scores = seen.head(attention, config_, head);
      own.add(scores);
      for (std::int64_t level = 0; level < config_.levels; ++level) {
        const auto& of_level = scores.levels[static_cast<std::size_t>(level)];
        own.add_rows(level, sampler_.rows(sequence, level, of_level));
        if (!has_bilinear_form(config_)) continue;
        const auto [query, key] = attention.projections(level);
        own.add_commutation(commutation_error(of_level, seen.inputs[static_cast<std::size_t>(level)], query[head],
                                              key[head], level, scores.length));
      }
    }
  }

  json heads_json(std::int64_t block, const HierarchicalAttentionImpl& attention) const {
    json heads = json::array();
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      json entry = {{"head", head}, {"spectrum", spectra_of(attention, head, true)}};
      entry.update(statistics_[static_cast<std::size_t>(block)][static_cast<std::size_t>(head)].to_json());
      heads.push_back(std::move(entry));
    }
    return heads;
  }

 private:
  const ModelConfig& config_;
  RowSampler sampler_;
  std::vector<std::vector<HeadStatistics>> statistics_;  // by block, by head
};

// What a block's own attention contains, on the first sequence.
json containment_of(HierarchicalAttentionImpl& attention, const at::Tensor& x) {
  return {{"standard_attention_error", or_null(contained_attention_error(attention, x))},
          {"equivariance_gap", or_null(equivariance_gap(attention, x))}};
}

// The mean over sequences of each shift's effect.
json phase_json(TransformerImpl& model, const std::vector<at::Tensor>& sequences,
                const std::function<void(std::size_t)>& progress) {
  std::vector<std::pair<Summary, Summary>> summaries;
  std::vector<PhaseEffect> effects;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto own = phase_effects(model, sequences[i]);
    progress(i);
    if (own.empty()) continue;  // one level, or too short
    effects = own;
    summaries.resize(effects.size());
    for (std::size_t j = 0; j < effects.size(); ++j) {
      summaries[j].first.add(effects[j].changed);
      summaries[j].second.add(effects[j].logit_change);
    }
  }
  json all = json::array();
  for (std::size_t j = 0; j < effects.size(); ++j) {
    const auto& [changed, logits] = summaries[j];
    all.push_back({{"shift", effects[j].shift},
                   {"sequences", changed.count},
                   {"changed", changed.mean()},
                   {"logit_change", logits.mean()},
                   {"largest_logit_change", logits.largest}});
  }
  return all;
}

// At four times the training length, as far as memory and time allow; null for models that it does not apply to.
json length_json(TransformerImpl& model, const std::vector<at::Tensor>& sequences) {
  constexpr std::int64_t factor = 4, few = 2, longest = 16384;
  json all = json::array();
  for (std::size_t i = 0; i < sequences.size() && std::ssize(all) < few; ++i) {
    const auto length = sequences[i].size(0);
    const auto wanted = std::min(longest, factor * model.config().max_length);
    const auto effect = length_effect(model, sequences[i], std::max(factor, (wanted + length - 1) / length));
    if (!effect) continue;
    all.push_back({{"length", effect->length},
                   {"times", effect->times},
                   {"score_change", effect->score_change},
                   {"copy_difference", effect->copy_difference},
                   {"dilution", effect->dilution},
                   {"dilution_deviation", effect->dilution_deviation},
                   {"predicted_dilution", std::log(static_cast<double>(effect->times))},
                   {"changed", effect->changed},
                   {"logit_change", effect->logit_change}});
  }
  return all.empty() ? json() : all;
}

// A layer's multiply-adds over those of standard attention.
json cost_json(const ModelConfig& config, const std::vector<at::Tensor>& sequences) {
  Summary scores, layer;
  for (const auto& sequence : sequences) {
    const auto own = layer_cost(config, sequence.size(0)), standard = standard_layer_cost(config, sequence.size(0));
    scores.add(own.scores / standard.scores);
    layer.add(own.total() / standard.total());
  }
  const auto longest = layer_cost(config, config.max_length), base = standard_layer_cost(config, config.max_length);
  return {{"scores", {{"mean", scores.mean()}, {"largest", scores.largest}}},
          {"layer", {{"mean", layer.mean()}, {"largest", layer.largest}}},
          {"at_max_length",
           {{"length", config.max_length},
            {"scores", longest.scores / base.scores},
            {"layer", longest.total() / base.total()}}}};
}

json constructed_json(std::int64_t seed) {
  const auto made = subsumption(seed);
  return {{"standard_error", made.standard_error},
          {"convolution_error", made.convolution.error},
          {"convolution_bound", made.convolution.bound},
          {"rank", made.rank},
          {"rank_bound", made.rank_bound},
          {"head_width", made.head_width},
          {"levels", made.levels}};
}

}  // namespace

nlohmann::ordered_json examine(const TransformerImpl& model, const std::vector<at::Tensor>& sequences,
                               const LabOptions& options) {
  const at::NoGradGuard no_grad;
  const auto& config = model.config();
  const auto exact = exact_copy(model);
  const auto total = 2 * std::ssize(sequences);  // once for scores, once for shifts
  const auto progress = [&](std::size_t done) {
    if (options.progress) options.progress(static_cast<std::int64_t>(done) + 1, total);
  };
  ScoreExamination scores(config, sequences, options);
  json containment = json::array();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    walk(*exact, sequences[i], [&](std::int64_t block, HierarchicalAttentionImpl& attention, const BlockView& seen) {
      scores.add(i, block, attention, seen);
      if (i == 0) containment.push_back(containment_of(attention, seen.normed));
    });
    progress(i);
  }
  json blocks = json::array();
  std::int64_t index = 0;
  for (const auto& module : *exact->blocks) {
    auto heads = scores.heads_json(index, *module->as<Block>()->attention);
    const auto& contained = containment[static_cast<std::size_t>(index)];
    blocks.push_back({{"block", index++}, {"containment", contained}, {"heads", std::move(heads)}});
  }
  const auto phase = phase_json(*exact, sequences, [&](std::size_t i) { progress(sequences.size() + i); });
  return {{"blocks", std::move(blocks)},
          {"cost", cost_json(config, sequences)},
          {"phase", phase},
          {"length", length_json(*exact, sequences)},
          {"subsumption", constructed_json(options.seed)}};
}

}  // namespace hkt::theory
