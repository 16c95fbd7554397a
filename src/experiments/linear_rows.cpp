// SPDX-License-Identifier: Apache-2.0
// Trains the linear models, several at a time.
#include "linear_rows.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <array>

#include "experiments/comparison.h"
#include "experiments/record.h"
#include "train/linear_baseline.h"

namespace hkt::experiments {
namespace {

constexpr int longest_gram = 4;
constexpr std::array rates = {0.1F, 0.4F, 1.5F};

struct Job {
  int gram;
  float rate;
  std::int64_t seed;
};

std::vector<train::LinearTestScore> train_all(const std::vector<Job>& jobs, const data::Dataset& dataset,
                                              std::int64_t longest) {
  std::vector<train::LinearTestScore> scores(jobs.size());
  at::parallel_for(0, std::ssize(jobs), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto& job = jobs[i];
      scores[i] = train::linear_test_score(dataset, longest, job.gram, job.rate, static_cast<std::uint64_t>(job.seed));
    }
  });
  return scores;
}

nlohmann::ordered_json row_of(int gram, float rate, const std::vector<const train::LinearTestScore*>& scores) {
  nlohmann::ordered_json row = {
      {"name", fmt::format("{}-grams", gram)},
      {"what", gram == 1 ? "logistic regression on how often tokens occur"
                         : fmt::format("logistic regression on how often n-grams of 1 to {} tokens occur", gram)},
      {"learning_rate", rate}};
  std::vector<double> accuracies;
  for (const auto* score : scores) {
    accuracies.push_back(100 * score->test.accuracy());
    row["validation_accuracy"].push_back(100 * score->validation.accuracy());
    row["correct_bits"].push_back(bits_text(score->correct));
  }
  row["test_accuracy"] = accuracies;
  row["mean"] = spread(accuracies).mean;
  row["deviation"] = spread(accuracies).deviation;
  return row;
}

}  // namespace

nlohmann::ordered_json linear_rows(const data::Dataset& dataset, std::int64_t longest,
                                   const std::vector<std::int64_t>& seeds) {
  std::vector<Job> candidates, others;
  for (int gram = 1; gram <= longest_gram; ++gram) {
    for (const auto rate : rates) candidates.push_back({gram, rate, seeds.front()});
  }
  const auto tried = train_all(candidates, dataset, longest);
  std::vector<std::size_t> chosen;  // of each length of n-grams
  for (std::size_t begin = 0; begin < tried.size(); begin += rates.size()) {
    auto best = begin;
    for (auto i = begin; i < begin + rates.size(); ++i) {
      if (tried[i].validation.correct > tried[best].validation.correct) best = i;
    }
    chosen.push_back(best);
    for (std::size_t i = 1; i < seeds.size(); ++i)
      others.push_back({candidates[best].gram, candidates[best].rate, seeds[i]});
  }
  const auto more = train_all(others, dataset, longest);
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t gram = 0; gram < chosen.size(); ++gram) {
    std::vector<const train::LinearTestScore*> scores = {&tried[chosen[gram]]};
    for (std::size_t i = 0; i + 1 < seeds.size(); ++i) scores.push_back(&more[gram * (seeds.size() - 1) + i]);
    const auto& job = candidates[chosen[gram]];
    rows.push_back(row_of(job.gram, job.rate, scores));
  }
  return rows;
}

}  // namespace hkt::experiments
