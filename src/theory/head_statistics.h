// SPDX-License-Identifier: Apache-2.0
// What is measured on the scores of one head of one block, accumulated over sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "hkt/theory.h"
#include "normality.h"

namespace hkt::theory {

// Running mean, minimum and maximum.
struct Summary {
  double sum = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  std::int64_t count = 0;

  void add(double value) {
    sum += value;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    ++count;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

// The mean share of each level over the queries that have a choice, by level; empty if none has.
std::vector<double> mean_shares(const HeadScores& head);

class HeadStatistics {
 public:
  explicit HeadStatistics(std::size_t levels) : levels_(levels), depths_(levels) {}

  void add(const HeadScores& head);
  void add_rows(std::int64_t level, const at::Tensor& rows) {
    levels_[static_cast<std::size_t>(level)].normality.add(rows);
  }
  void add_commutation(double error) { commutation_.add(error); }
  nlohmann::ordered_json to_json() const;

 private:
  struct Level {
    double weight = 0;
    Summary share, directionality, curl, reach;
    Normality normality;
  };
  struct Kept {
    Summary kl, gaussian, non_gaussian, remainder, remainder_bound, tilted, tilted_bound, hoeffding, plain_kl,
        plain_hoeffding;
  };

  void add_depth(const HeadScores& head);
  nlohmann::ordered_json levels_json() const;
  nlohmann::ordered_json depth_json() const;

  std::vector<Level> levels_;
  std::vector<Kept> depths_;
  Summary smallest_eigenvalue_, negative_energy_, commutation_, independence_, curl_, identity_error_, excess_, rank_;
  std::int64_t independent_matrices_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace hkt::theory
