// SPDX-License-Identifier: Apache-2.0
// Counting classes, lengths and duplicates.
#include "data/summary.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "files/quote.h"
#include "reading.h"

namespace hkt::data {
namespace {

std::string_view text_of(const Split& split, std::int64_t i) {
  const auto tokens = split.tokens(i);
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size()};
}

using Texts = std::unordered_set<std::string_view>;

Texts texts_of(const Split& split) {
  Texts texts;
  texts.reserve(static_cast<std::size_t>(split.size()));
  for (std::int64_t i = 0; i < split.size(); ++i) texts.insert(text_of(split, i));
  return texts;
}

Lengths lengths_of(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  constexpr std::size_t percent = 95, all = 100;
  double sum = 0;
  for (const auto length : lengths) sum += static_cast<double>(length);
  const auto most = (lengths.size() * percent + all - 1) / all - 1;
  return {lengths.front(), lengths[(lengths.size() - 1) / 2], lengths.back(), lengths[most],
          sum / static_cast<double>(lengths.size())};
}

SplitSummary summary_of(const std::string& name, const Split& split, std::size_t classes, std::int64_t max_length,
                        const Texts& texts) {
  SplitSummary summary{name, split.size(), std::vector<std::int64_t>(classes)};
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    ++summary.by_class[static_cast<std::size_t>(split.label(i))];
    lengths.push_back(std::ssize(split.tokens(i)));
    summary.cut += lengths.back() > max_length ? 1 : 0;
    summary.cut_tokens += std::max<std::int64_t>(0, lengths.back() - max_length);
  }
  summary.repeated = split.size() - std::ssize(texts);
  summary.lengths = lengths_of(std::move(lengths));
  return summary;
}

std::int64_t contradictions_in(const Split& split) {
  std::unordered_map<std::string_view, std::int64_t> labels;
  std::unordered_set<std::string_view> disputed;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    const auto [known, fresh] = labels.emplace(text_of(split, i), split.label(i));
    if (!fresh && known->second != split.label(i)) disputed.insert(known->first);
  }
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) count += disputed.contains(text_of(split, i)) ? 1 : 0;
  return count;
}

std::string percent(double share) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

// Labels that training has and this split has not.
std::vector<std::string> missing_in(const SplitSummary& split, const Summary& summary) {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < summary.labels.size(); ++i) {
    if (split.by_class[i] == 0) missing.push_back(summary.labels[i]);
  }
  return missing;
}

}  // namespace

Summary summarise(const Dataset& dataset, std::int64_t max_length) {
  Summary summary;
  summary.labels = dataset.labels;
  std::vector<std::pair<std::string, const Split*>> splits = {{"training", &dataset.train},
                                                              {"validation", &dataset.validation}};
  if (dataset.test.size() > 0) splits.emplace_back("test", &dataset.test);
  std::vector<Texts> texts;
  for (const auto& [name, split] : splits) {
    texts.push_back(texts_of(*split));
    summary.splits.push_back(summary_of(name, *split, dataset.labels.size(), max_length, texts.back()));
    for (std::size_t before = 0; before + 1 < texts.size(); ++before) {
      Overlap overlap{splits[before].first, name};
      for (std::int64_t i = 0; i < split->size(); ++i) {
        overlap.sequences += texts[before].contains(text_of(*split, i)) ? 1 : 0;
      }
      summary.overlaps.push_back(std::move(overlap));
    }
  }
  summary.contradictions = contradictions_in(dataset.train);
  const auto& counts = summary.splits.front().by_class;
  const auto [rarest, largest] = std::minmax_element(counts.begin(), counts.end());
  const auto share = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(std::max<std::int64_t>(1, b));
  };
  if (!counts.empty()) {
    summary.largest_share = share(*largest, dataset.train.size());
    summary.imbalance = share(*largest, *rarest);
  }
  return summary;
}

std::vector<std::string> warnings(const Summary& summary) {
  constexpr double unequal = 5;
  std::vector<std::string> sentences;
  for (const auto& overlap : summary.overlaps) {
    if (overlap.sequences == 0) continue;
    sentences.push_back(std::to_string(overlap.sequences) + " " + overlap.second + " sequences are also in " +
                        overlap.first + ", so the score there is too good.");
  }
  if (summary.contradictions > 0) {
    sentences.push_back(std::to_string(summary.contradictions) + " training sequences also occur with another label.");
  }
  for (const auto& split : summary.splits) {
    if (const auto missing = missing_in(split, summary); !missing.empty() && split.sequences > 0) {
      sentences.push_back("no " + split.name + " sequence has the label " + listed(missing) + ".");
    }
  }
  if (summary.imbalance >= unequal) {
    sentences.push_back("the classes are unequal: always guessing the most frequent one is right in " +
                        percent(summary.largest_share) +
                        " of the training sequences; train.class_weights=balanced makes rare ones count more.");
  }
  return sentences;
}

}  // namespace hkt::data
