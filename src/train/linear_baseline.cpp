// SPDX-License-Identifier: Apache-2.0
// Logistic regression on hashed byte n-grams, by AdaGrad.
#include "train/linear_baseline.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace hkt::train {
namespace {

constexpr int longest_gram = 4, passes = 5;
constexpr double most_work = 2e9;  // additions; a few seconds

struct Feature {
  std::uint32_t place;  // in a table of 2^bits
  float value;
};

// What counts of an n-gram: that it occurs, or the logarithm of one more than how often.
enum class Values : std::uint8_t { presence, counts };

// The distinct n-grams of a text, as features whose vector has norm 1, for texts of any length.
class Grams {
 public:
  Grams(int bits, std::size_t longest, Values values)
      : bits_(bits), longest_(longest), values_(values), seen_(std::size_t{1} << bits) {}

  const std::vector<Feature>& of(std::span<const std::uint8_t> text) {
    ++texts_;
    found_.clear();
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
      std::uint64_t hash = 0;
      for (const auto byte : text.subspan(begin, std::min(longest_, text.size() - begin))) {
        constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio: spreads over the high bits
        hash = (hash + byte + 1) * odd;
        add(static_cast<std::uint32_t>(hash >> (64 - bits_)));
      }
    }
    normalise();
    return found_;
  }

 private:
  struct Seen {
    std::uint32_t text = 0, index = 0;  // the number of the last text to have it, and its place in found_
  };

  void add(std::uint32_t place) {
    auto& seen = seen_[place];
    if (seen.text == texts_) {
      ++found_[seen.index].value;
      return;
    }
    seen = {texts_, static_cast<std::uint32_t>(found_.size())};
    found_.push_back({place, 1});
  }

  void normalise() {
    float squares = 0;
    for (auto& feature : found_) {
      feature.value = values_ == Values::counts ? std::log1p(feature.value) : 1;
      squares += feature.value * feature.value;
    }
    for (auto& feature : found_) feature.value /= std::sqrt(squares);
  }

  int bits_;
  std::size_t longest_;  // of an n-gram
  Values values_;
  std::uint32_t texts_ = 0;  // so far
  std::vector<Seen> seen_;
  std::vector<Feature> found_;
};

class LinearModel {
 public:
  LinearModel(int bits, std::size_t classes)
      : classes_(classes), weights_(classes << bits), squares_(classes << bits), scores_(classes) {}

  std::size_t predict(const std::vector<Feature>& features) {
    std::fill(scores_.begin(), scores_.end(), 0.F);
    for (const auto [place, value] : features) {
      const auto* row = weights_.data() + place * classes_;
      for (std::size_t i = 0; i < classes_; ++i) scores_[i] += value * row[i];
    }
    return static_cast<std::size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  }

  void learn(const std::vector<Feature>& features, std::size_t label, float rate) {
    const float highest = scores_[predict(features)];
    float sum = 0;
    for (auto& score : scores_) sum += score = std::exp(score - highest);
    for (std::size_t i = 0; i < classes_; ++i) scores_[i] = scores_[i] / sum - (i == label ? 1.F : 0.F);
    for (const auto [place, value] : features) {
      auto *row = weights_.data() + place * classes_, *squares = squares_.data() + place * classes_;
      for (std::size_t i = 0; i < classes_; ++i) {
        constexpr float tiny = 1e-8F;
        const float gradient = value * scores_[i];
        squares[i] += gradient * gradient;
        row[i] -= rate * gradient / std::sqrt(squares[i] + tiny);
      }
    }
  }

 private:
  std::size_t classes_;
  std::vector<float> weights_, squares_;  // of n-gram and class
  std::vector<float> scores_;             // of the last text, or their gradients
};

constexpr int usual_bits = 18;

// A table that stays in the cache where the classes are few, and is not too large where they are many.
int table_bits(std::size_t classes, int most = usual_bits) {
  constexpr int fewest = 12;
  const std::size_t largest = std::size_t{16} << most;
  int bits = most;
  while (bits > fewest && (classes << bits) > largest) --bits;
  return bits;
}

std::span<const std::uint8_t> head_of(const data::Split& split, std::int64_t i, std::int64_t longest) {
  const auto tokens = split.tokens(i);
  return tokens.first(std::min(tokens.size(), static_cast<std::size_t>(longest)));
}

// Every one, or every second, third and so on, as many as the work allows.
std::vector<std::int64_t> chosen(const data::Split& split, std::int64_t longest, std::size_t classes) {
  double work = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) work += static_cast<double>(head_of(split, i, longest).size());
  work *= static_cast<double>(longest_gram * passes) * static_cast<double>(classes + 1);
  const auto stride = static_cast<std::int64_t>(std::ceil(std::max(1.0, work / most_work)));
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < split.size(); i += stride) order.push_back(i);
  return order;
}

constexpr float usual_rate = 0.1F;

void learn(const data::Split& split, std::int64_t longest, std::vector<std::int64_t> order, float first_rate,
           std::mt19937_64& generator, Grams& grams, LinearModel& model) {
  for (int pass = 0; pass < passes; ++pass) {
    for (auto i = order.size(); i > 1; --i) std::swap(order[i - 1], order[generator() % i]);
    const float rate = first_rate * static_cast<float>(passes - pass) / passes;
    for (const auto i : order)
      model.learn(grams.of(head_of(split, i, longest)), static_cast<std::size_t>(split.label(i)), rate);
  }
}

std::vector<bool> right_on(const data::Split& split, std::int64_t longest, Grams& grams, LinearModel& model) {
  std::vector<bool> right;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    const auto found = model.predict(grams.of(head_of(split, i, longest)));
    right.push_back(static_cast<std::int64_t>(found) == split.label(i));
  }
  return right;
}

LinearScore score_of(const std::vector<bool>& right, std::int64_t trained_on) {
  return {std::count(right.begin(), right.end(), true), std::ssize(right), trained_on};
}

// The linear model of a table.
class TrainedModel {
 public:
  TrainedModel(const data::Dataset& dataset, const LinearSettings& settings)
      : bits_(table_bits(dataset.labels.size(), most_bits)),
        longest_(settings.longest),
        trained_on_(dataset.train.size()),
        grams_(bits_, static_cast<std::size_t>(settings.gram), Values::counts),
        model_(bits_, dataset.labels.size()) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(trained_on_));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::mt19937_64 generator(settings.seed);
    learn(dataset.train, longest_, order, static_cast<float>(settings.rate), generator, grams_, model_);
  }

  std::vector<bool> right_on(const data::Split& split) { return train::right_on(split, longest_, grams_, model_); }
  LinearScore score(const std::vector<bool>& right) const { return score_of(right, trained_on_); }

 private:
  static constexpr int most_bits = 21;
  int bits_;
  std::int64_t longest_, trained_on_;
  Grams grams_;
  LinearModel model_;
};

}  // namespace

LinearScore linear_baseline(const data::Dataset& dataset, std::int64_t longest) {
  const auto classes = dataset.labels.size();
  const int bits = table_bits(classes);
  Grams grams(bits, longest_gram, Values::presence);
  LinearModel model(bits, classes);
  const auto order = chosen(dataset.train, longest, classes);
  std::mt19937_64 generator;  // NOLINT: the same order every time
  learn(dataset.train, longest, order, usual_rate, generator, grams, model);
  return score_of(right_on(dataset.validation, longest, grams, model), std::ssize(order));
}

LinearScore linear_validation_score(const data::Dataset& dataset, const LinearSettings& settings) {
  TrainedModel trained(dataset, settings);
  return trained.score(trained.right_on(dataset.validation));
}

LinearTestScore linear_test_score(const data::Dataset& dataset, const LinearSettings& settings) {
  TrainedModel trained(dataset, settings);
  auto correct = trained.right_on(dataset.test);
  return {trained.score(trained.right_on(dataset.validation)), trained.score(correct), std::move(correct)};
}

}  // namespace hkt::train
