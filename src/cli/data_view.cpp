// SPDX-License-Identifier: Apache-2.0
// Printing summaries of data sets.
#include "data_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "files/quote.h"
#include "print.h"

namespace hkt::cli {
namespace {

constexpr std::size_t most_classes = 20;  // shown

void print_splits(const data::Summary& summary) {
  fmt::print("{:12}{:>10}   length: shortest, median, mean, 95 %, longest    repeated\n", "", "sequences");
  for (const auto& split : summary.splits) {
    const auto& lengths = split.lengths;
    fmt::print("{:12}{:>10}{:>18}{:>8}{:>8.1f}{:>6}{:>9}{:>12}\n", split.name, split.sequences, lengths.shortest,
               lengths.median, lengths.mean, lengths.most, lengths.longest, split.repeated);
  }
}

void print_classes(const data::Summary& summary) {
  fmt::print("{:28}", fmt::format("{} classes", summary.labels.size()));
  for (const auto& split : summary.splits) fmt::print("{:>12}", split.name);
  fmt::print("\n");
  const auto shown = std::min(summary.labels.size(), most_classes);
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print("  {:26}", printable(summary.labels[i]));
    for (const auto& split : summary.splits) fmt::print("{:>12}", split.by_class[i]);
    fmt::print("\n");
  }
  if (shown < summary.labels.size()) fmt::print("  and {} more\n", summary.labels.size() - shown);
}

}  // namespace

void print_summary(const data::Summary& summary, std::int64_t max_length) {
  print_splits(summary);
  print_classes(summary);
  for (const auto& split : summary.splits) {
    if (split.cut == 0) continue;
    const auto tokens = split.lengths.mean * static_cast<double>(split.sequences);
    fmt::print(
        "{} of {} {} sequences are longer than model.max_length, {}, and are cut there: {:.1f} % of the tokens are "
        "lost\n",
        split.cut, split.sequences, split.name, max_length, 100 * static_cast<double>(split.cut_tokens) / tokens);
  }
  fmt::print("always guessing the most frequent class is right in {:.1f} % of training\n", 100 * summary.largest_share);
  std::fflush(stdout);
  for (const auto& sentence : warnings(summary)) warn(sentence);
}

nlohmann::ordered_json json_of(const data::Summary& summary) {
  nlohmann::ordered_json json = {{"labels", summary.labels}};
  for (const auto& split : summary.splits) {
    const auto& lengths = split.lengths;
    json["splits"].push_back({{"name", split.name},
                              {"sequences", split.sequences},
                              {"by_class", split.by_class},
                              {"lengths",
                               {{"shortest", lengths.shortest},
                                {"median", lengths.median},
                                {"mean", lengths.mean},
                                {"percentile_95", lengths.most},
                                {"longest", lengths.longest}}},
                              {"cut", split.cut},
                              {"cut_tokens", split.cut_tokens},
                              {"repeated", split.repeated}});
  }
  for (const auto& overlap : summary.overlaps) {
    json["overlaps"].push_back(
        {{"first", overlap.first}, {"second", overlap.second}, {"sequences", overlap.sequences}});
  }
  json["contradictions"] = summary.contradictions;
  json["largest_share"] = summary.largest_share;
  json["imbalance"] = summary.imbalance;
  json["warnings"] = warnings(summary);
  return json;
}

void print_linear_score(const train::LinearScore& score, std::int64_t training) {
  fmt::print(
      "a linear model of byte n-grams{}: {:.2f} % of {} validation sequences\n",
      score.trained_on < training ? fmt::format(" on {} of {} training sequences", score.trained_on, training) : "",
      100 * score.accuracy(), score.sequences);
  std::fflush(stdout);
}

void warn_of_linear_score(const train::LinearScore& score, double accuracy) {
  if (score.accuracy() <= accuracy) return;
  warn(fmt::format(
      "a linear model of byte n-grams is better: {:.2f} % of {} validation sequences against {:.2f} %; more "
      "data, more epochs or another learning rate may help, and else the simpler model is enough.",
      100 * score.accuracy(), score.sequences, 100 * accuracy));
}

}  // namespace hkt::cli
