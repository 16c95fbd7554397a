// SPDX-License-Identifier: Apache-2.0
// Precision, recall, confusions, calibration and the worst mistakes, from logits and labels.
#include "train/classifier_score.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace hkt::train {
namespace {

constexpr int bins = 10;

double share(std::int64_t part, std::int64_t all) { return static_cast<double>(part) / static_cast<double>(all); }

// Every sequence with its label and what was predicted, whether that is wrong or not.
std::vector<Mistake> outcomes_of(const Predictions& predictions) {
  const auto probabilities = at::nan_to_num(at::softmax(predictions.logits.to(at::kDouble), 1));
  const auto highest = at::amax(probabilities, 1).contiguous();
  const auto own = probabilities.gather(1, predictions.labels.unsqueeze(1)).squeeze(1).contiguous();
  const auto chosen =
      predictions.logits.argmax(1).contiguous();  // as accuracy counts: float64 may break a tie of float32
  std::vector<Mistake> outcomes;
  for (std::int64_t i = 0; i < own.size(0); ++i) {
    outcomes.push_back({i, predictions.labels.const_data_ptr<std::int64_t>()[i],
                        chosen.const_data_ptr<std::int64_t>()[i], own.const_data_ptr<double>()[i],
                        highest.const_data_ptr<double>()[i]});
  }
  return outcomes;
}

void count(const std::vector<Mistake>& outcomes, ClassifierScore& score) {
  for (const auto& outcome : outcomes) {
    const auto label = static_cast<std::size_t>(outcome.label), predicted = static_cast<std::size_t>(outcome.predicted);
    ++score.classes[label].sequences;
    ++score.classes[predicted].predicted;
    score.classes[label].correct += label == predicted ? 1 : 0;
    ++score.confusion[label][outcome.predicted];
  }
  double sum = 0;
  std::int64_t defined = 0;
  for (const auto& own : score.classes) {
    sum += own.f1().value_or(0);
    defined += own.f1() ? 1 : 0;
  }
  if (defined > 0) score.macro_f1 = sum / static_cast<double>(defined);
}

void calibrate(const std::vector<Mistake>& outcomes, ClassifierScore& score) {
  for (int i = 0; i < bins; ++i) {
    score.confidence.push_back({static_cast<double>(i) / bins, static_cast<double>(i + 1) / bins, 0, 0, 0});
  }
  for (const auto& outcome : outcomes) {
    const int place = static_cast<int>(std::ceil(outcome.predicted_probability * bins)) - 1;
    auto& bin = score.confidence[static_cast<std::size_t>(std::clamp(place, 0, bins - 1))];
    ++bin.sequences;
    bin.confidence += outcome.predicted_probability;
    bin.accuracy += outcome.label == outcome.predicted ? 1 : 0;
  }
  for (auto& bin : score.confidence) {
    if (bin.sequences == 0) continue;
    bin.confidence /= static_cast<double>(bin.sequences);
    bin.accuracy /= static_cast<double>(bin.sequences);
    score.calibration_error += share(bin.sequences, std::ssize(outcomes)) * std::abs(bin.confidence - bin.accuracy);
  }
}

}  // namespace

std::optional<double> ClassScore::recall() const {
  return sequences > 0 ? std::optional(share(correct, sequences)) : std::nullopt;
}

std::optional<double> ClassScore::precision() const {
  return predicted > 0 ? std::optional(share(correct, predicted)) : std::nullopt;
}

std::optional<double> ClassScore::f1() const {
  return sequences + predicted > 0 ? std::optional(2 * share(correct, sequences + predicted)) : std::nullopt;
}

ClassifierScore score(const Predictions& predictions, std::size_t most_mistakes) {
  ClassifierScore score;
  score.classes.resize(static_cast<std::size_t>(predictions.logits.size(1)));
  score.confusion.resize(score.classes.size());
  auto outcomes = outcomes_of(predictions);
  count(outcomes, score);
  calibrate(outcomes, score);
  std::erase_if(outcomes, [](const auto& outcome) { return outcome.label == outcome.predicted; });
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [](const auto& a, const auto& b) { return a.probability < b.probability; });
  outcomes.resize(std::min(outcomes.size(), most_mistakes));
  score.mistakes = std::move(outcomes);
  return score;
}

}  // namespace hkt::train
