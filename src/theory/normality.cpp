// SPDX-License-Identifier: Apache-2.0
// The rows that are tested, and one result from the tests of several sequences.
#include "normality.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "hkt/ops.h"

namespace hkt::theory {
namespace {

using json = nlohmann::ordered_json;

// In ascending order. std::shuffle differs between standard libraries; this does not.
at::Tensor choose(std::int64_t rows, std::int64_t samples, std::mt19937_64& generator) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[generator() % i]);
  all.resize(static_cast<std::size_t>(std::min(rows, samples)));
  std::sort(all.begin(), all.end());
  return at::tensor(all, at::kLong);
}

double mean_of(const std::vector<Mardia>& tests, double Mardia::* value) {
  double sum = 0;
  for (const auto& test : tests) sum += test.*value;
  return sum / static_cast<double>(tests.size());
}

double combined_of(const std::vector<Mardia>& tests, double Mardia::* value) {
  std::vector<double> p;
  for (const auto& test : tests) p.push_back(test.*value);
  return combined_p(p);
}

std::int64_t smallest_of(const std::vector<Mardia>& tests, std::int64_t Mardia::* value) {
  auto smallest = tests.front().*value;
  for (const auto& test : tests) smallest = std::min(smallest, test.*value);
  return smallest;
}

}  // namespace

RowSampler::RowSampler(const std::vector<at::Tensor>& sequences, std::int64_t levels, Size size, std::int64_t seed)
    : columns_(size.columns) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(seed));
  for (std::int64_t level = 0; level < levels; ++level) {
    auto& chosen = chosen_.emplace_back();
    for (const auto& sequence : sequences) {
      const auto length = sequence.size(0);
      const bool too_short = length < columns_ << level;
      chosen.push_back(too_short ? at::Tensor() : choose(level_rows(length, level), size.samples, generator));
    }
  }
}

at::Tensor RowSampler::rows(std::size_t sequence, std::int64_t level, const at::Tensor& scores) const {
  const auto& own = chosen_[static_cast<std::size_t>(level)][sequence];
  return own.defined() ? scores.narrow(1, 0, columns_).index_select(0, own) : at::Tensor();
}

json Normality::to_json(bool with_component) const {
  std::vector<Mardia> made;
  for (const auto& test : tests_)
    if (test.trouble.empty()) made.push_back(test);
  if (made.empty()) return {{"trouble", tests_.empty() ? "no sequence is long enough" : tests_.front().trouble}};
  double ratio = 0;
  for (const auto& test : made) ratio += test.kurtosis / test.gaussian_kurtosis / static_cast<double>(made.size());
  json result = {{"sequences", made.size()},
                 {"samples", smallest_of(made, &Mardia::samples)},
                 {"dimensions", smallest_of(made, &Mardia::dimensions)},
                 {"skewness", mean_of(made, &Mardia::skewness)},
                 {"gaussian_skewness", mean_of(made, &Mardia::gaussian_skewness)},
                 {"kurtosis", mean_of(made, &Mardia::kurtosis)},
                 {"gaussian_kurtosis", mean_of(made, &Mardia::gaussian_kurtosis)},
                 {"kurtosis_ratio", ratio},
                 {"skewness_p", combined_of(made, &Mardia::skewness_p)},
                 {"kurtosis_p", combined_of(made, &Mardia::kurtosis_p)}};
  if (with_component) result["first_component"] = made.front().first_component;
  return result;
}

}  // namespace hkt::theory
