// SPDX-License-Identifier: Apache-2.0
// Precision, recall, F1, confusions, calibration and mistakes, against numbers worked out by hand.
#include "train/classifier_score.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace {

using hkt::train::ClassifierScore;

// A sequence whose classes have these probabilities.
ClassifierScore score_of(const std::vector<std::vector<double>>& probabilities, const std::vector<int64_t>& labels,
                         std::size_t most_mistakes = 10) {
  std::vector<at::Tensor> rows;
  rows.reserve(probabilities.size());
  for (const auto& row : probabilities) rows.push_back(at::tensor(row, at::kDouble).log());
  return hkt::train::score({at::stack(rows).to(at::kFloat), at::tensor(labels, at::kLong), {}}, most_mistakes);
}

const std::vector<std::vector<double>> five = {
    {0.85, 0.10, 0.05}, {0.17, 0.78, 0.05}, {0.84, 0.06, 0.10}, {0.05, 0.92, 0.03}, {0.33, 0.42, 0.25}};
const std::vector<int64_t> five_labels = {0, 0, 1, 1, 1};  // class 2 has no sequence and is never predicted

TEST(ClassifierScore, CountsByClass) {
  const auto score = score_of(five, five_labels);
  ASSERT_EQ(score.classes.size(), 3U);
  EXPECT_EQ(score.classes[0].sequences, 2);
  EXPECT_EQ(score.classes[0].predicted, 2);
  EXPECT_EQ(score.classes[0].correct, 1);
  EXPECT_DOUBLE_EQ(score.classes[0].recall().value_or(-1), 1.0 / 2);
  EXPECT_DOUBLE_EQ(score.classes[1].recall().value_or(-1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.classes[1].precision().value_or(-1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.classes[0].f1().value_or(-1), 1.0 / 2);
  EXPECT_DOUBLE_EQ(score.classes[1].f1().value_or(-1), 2.0 / 3);
  EXPECT_FALSE(score.classes[2].recall() || score.classes[2].precision() || score.classes[2].f1());
  EXPECT_DOUBLE_EQ(score.macro_f1.value_or(-1), (1.0 / 2 + 2.0 / 3) / 2);
  const std::vector<std::map<int64_t, int64_t>> confusion = {{{0, 1}, {1, 1}}, {{0, 1}, {1, 2}}, {}};
  EXPECT_EQ(score.confusion, confusion);
}

TEST(ClassifierScore, ComparesConfidenceWithAccuracy) {
  const auto score = score_of(five, five_labels);
  constexpr double tolerance = 1e-6;
  ASSERT_EQ(score.confidence.size(), 10U);
  const std::map<std::size_t, int64_t> wanted = {{4, 1}, {7, 1}, {8, 2}, {9, 1}};
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(score.confidence[i].sequences, wanted.contains(i) ? wanted.at(i) : 0) << i;
  }
  EXPECT_NEAR(score.confidence[8].confidence, 0.845, tolerance);
  EXPECT_NEAR(score.confidence[8].accuracy, 0.5, tolerance);
  const double distances = (1 - 0.42) + 0.78 + 2 * (0.845 - 0.5) + (1 - 0.92);
  EXPECT_NEAR(score.calibration_error, distances / 5, tolerance);
  // Four certain answers, half of them wrong: |0.75 - 0.5|.
  const std::vector<double> certain = {0.75, 0.25};
  EXPECT_NEAR(score_of({certain, certain, certain, certain}, {0, 0, 1, 1}).calibration_error, 0.25, tolerance);
  EXPECT_NEAR(score_of({certain, certain, certain, certain}, {0, 0, 0, 1}).calibration_error, 0, tolerance);
}

TEST(ClassifierScore, PutsTheWorstMistakesFirst) {
  const auto score = score_of(five, five_labels);
  ASSERT_EQ(score.mistakes.size(), 2U);
  EXPECT_EQ(score.mistakes[0].sequence, 2);
  EXPECT_EQ(score.mistakes[1].sequence, 1);
  EXPECT_EQ(score.mistakes[0].label, 1);
  EXPECT_EQ(score.mistakes[0].predicted, 0);
  EXPECT_NEAR(score.mistakes[0].probability, 0.06, 1e-6);
  EXPECT_NEAR(score.mistakes[0].predicted_probability, 0.84, 1e-6);
  EXPECT_EQ(score_of(five, five_labels, 1).mistakes.size(), 1U);
}

TEST(ClassifierScore, TakesNumbersThatAreNotFinite) {
  const auto score = score_of({{NAN, NAN}, {0.3, 0.7}}, {0, 1});
  EXPECT_TRUE(std::isfinite(score.calibration_error));
  EXPECT_EQ(score.classes[1].correct, 1);
}

}  // namespace
