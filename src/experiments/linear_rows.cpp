// SPDX-License-Identifier: Apache-2.0
// Trains the linear models, several at a time.
#include "linear_rows.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "experiments/comparison.h"
#include "experiments/record.h"
#include "train/linear_baseline.h"

namespace hkt::experiments {
namespace {

constexpr int longest_gram = 4;

struct Trained {
  double validation = 0, test = 0;
  std::string bits;
};

Trained train_one(const data::Dataset& dataset, std::int64_t longest, int gram, std::int64_t seed) {
  const auto score = train::linear_test_score(dataset, longest, gram, static_cast<std::uint64_t>(seed));
  return {100 * score.validation.accuracy(), 100 * score.test.accuracy(), bits_text(score.correct)};
}

}  // namespace

nlohmann::ordered_json linear_rows(const data::Dataset& dataset, std::int64_t longest,
                                   const std::vector<std::int64_t>& seeds) {
  const auto count = std::ssize(seeds);
  std::vector<Trained> all(static_cast<std::size_t>(longest_gram * count));
  at::parallel_for(0, std::ssize(all), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      all[static_cast<std::size_t>(i)] =
          train_one(dataset, longest, static_cast<int>(1 + i / count), seeds[static_cast<std::size_t>(i % count)]);
    }
  });
  auto rows = nlohmann::ordered_json::array();
  for (int gram = 1; gram <= longest_gram; ++gram) {
    nlohmann::ordered_json row = {
        {"name", fmt::format("{}-grams", gram)},
        {"what", gram == 1 ? "logistic regression on which tokens occur"
                           : fmt::format("logistic regression on which sequences of 1 to {} tokens occur", gram)}};
    std::vector<double> accuracies;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& one = all[static_cast<std::size_t>((gram - 1) * count + i)];
      accuracies.push_back(one.test);
      row["validation_accuracy"].push_back(one.validation);
      row["correct_bits"].push_back(one.bits);
    }
    row["test_accuracy"] = accuracies;
    row["mean"] = spread(accuracies).mean;
    row["deviation"] = spread(accuracies).deviation;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace hkt::experiments
