// SPDX-License-Identifier: Apache-2.0
// Interleaved timing: all candidates of a comparison are run once per round, so that a noisy machine disturbs them alike, and a
// ratio is the median over rounds of the ratio within the round.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hkt::bench {

struct Candidate {
  std::string name;
  std::function<void()> work;
};

class Timings {
 public:
  // Runs every candidate `rounds` times in turn, each sample long enough to be read off the clock. `finish` waits for work
  // that was only started, as on a GPU.
  Timings(const std::vector<Candidate>& candidates, int rounds, const std::function<void()>& finish = [] {});
  double seconds(const std::string& name) const;  // median
  double ratio(const std::string& name, const std::string& to) const;
  bool has(const std::string& name) const;

 private:
  const std::vector<double>& of(const std::string& name) const;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> samples_;
};

// The most memory that torch held at a time beyond what was there before, in bytes.
std::int64_t peak_bytes(const std::function<void()>& work);

// A table that is printed row by row, and kept for the results file.
class Table {
 public:
  Table(std::string title, std::vector<std::string> columns);
  void add(const std::vector<std::string>& cells);
  nlohmann::json json() const;
  std::string markdown() const;

 private:
  std::string title_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string number(double value, int digits);

Table attention_shapes(bool quick);
Table attention_growth_with_length(bool quick);
Table attention_growth_with_levels(bool quick);
Table attention_memory(bool quick);
Table downsample_shapes(bool quick);
Table training_steps(bool quick);

// On the first GPU.
bool can_use_cuda();
Table cuda_attention_shapes(bool quick);
Table cuda_attention_levels(bool quick);
Table cuda_attention_float32(bool quick);
Table cuda_attention_long(bool quick);
Table cuda_training_steps(bool quick);

}  // namespace hkt::bench
