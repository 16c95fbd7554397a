// SPDX-License-Identifier: Apache-2.0
// Trains the linear models, several at a time.
#include "linear_rows.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "experiments/comparison.h"
#include "experiments/record.h"
#include "train/linear_baseline.h"

namespace hkt::experiments {
namespace {

constexpr int longest_gram = 4;
constexpr std::array rates = {0.1, 0.4, 1.5};

// Calls work(0) to work(count - 1), some at the same time.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  at::parallel_for(0, static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) work(static_cast<std::size_t>(i));
  });
}

// For each length of n-grams, the settings that are best on validation with this seed.
std::vector<train::LinearSettings> chosen(const data::Dataset& dataset, std::int64_t longest, std::int64_t seed) {
  std::vector<train::LinearSettings> candidates;
  for (int gram = 1; gram <= longest_gram; ++gram) {
    for (const auto rate : rates) candidates.push_back({longest, gram, rate, static_cast<std::uint64_t>(seed)});
  }
  std::vector<std::int64_t> correct(candidates.size());
  in_parallel(candidates.size(),
              [&](std::size_t i) { correct[i] = train::linear_validation_score(dataset, candidates[i]).correct; });
  std::vector<train::LinearSettings> best;
  for (auto own = correct.begin(); own != correct.end(); own += rates.size()) {
    const auto found = std::max_element(own, own + rates.size());
    best.push_back(candidates[static_cast<std::size_t>(found - correct.begin())]);
  }
  return best;
}

nlohmann::ordered_json row_of(const train::LinearSettings& settings, std::span<const train::LinearTestScore> scores) {
  const int gram = settings.gram;
  nlohmann::ordered_json row = {
      {"name", fmt::format("{}-grams", gram)},
      {"what", gram == 1 ? "logistic regression on how often tokens occur"
                         : fmt::format("logistic regression on how often n-grams of 1 to {} tokens occur", gram)},
      {"learning_rate", settings.rate}};
  std::vector<double> accuracies;
  for (const auto& score : scores) {
    accuracies.push_back(100 * score.test.accuracy());
    row["validation_accuracy"].push_back(100 * score.validation.accuracy());
    row["correct_bits"].push_back(bits_text(score.correct));
  }
  row["test_accuracy"] = accuracies;
  row["mean"] = spread(accuracies).mean;
  row["deviation"] = spread(accuracies).deviation;
  return row;
}

}  // namespace

nlohmann::ordered_json linear_rows(const data::Dataset& dataset, std::int64_t longest,
                                   const std::vector<std::int64_t>& seeds) {
  const auto best = chosen(dataset, longest, seeds.front());
  std::vector<train::LinearTestScore> scores(best.size() * seeds.size());
  in_parallel(scores.size(), [&](std::size_t i) {
    auto settings = best[i / seeds.size()];
    settings.seed = static_cast<std::uint64_t>(seeds[i % seeds.size()]);
    scores[i] = train::linear_test_score(dataset, settings);
  });
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < best.size(); ++i)
    rows.push_back(row_of(best[i], std::span(scores).subspan(i * seeds.size(), seeds.size())));
  return rows;
}

}  // namespace hkt::experiments
