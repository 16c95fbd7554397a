// SPDX-License-Identifier: Apache-2.0
// Interleaved timing: all candidates of a comparison run once per round, so that noise affects them alike, and a ratio is
// the median over rounds of the ratio within the round.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memory_meter.h"

namespace hkt::bench {

struct Candidate {
  std::string name;
  std::function<void()> work;
};

class Timings {
 public:
  // Times the candidates, interleaved, in `rounds` rounds; a sample repeats its work until it is long enough to measure.
  // `finish` waits for asynchronous work, as on a GPU.
  Timings(const std::vector<Candidate>& candidates, int rounds, const std::function<void()>& finish = [] {});
  double seconds(const std::string& name) const;  // median
  double ratio(const std::string& name, const std::string& to) const;
  bool has(const std::string& name) const;

 private:
  const std::vector<double>& of(const std::string& name) const;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> samples_;
};

// The peak of the memory that torch allocates during `work`, in bytes, without what was allocated before.
using testing::peak_bytes;

// A table that is printed row by row and stored for the results file.
class Table {
 public:
  Table(std::string title, std::vector<std::string> columns);
  void add(const std::vector<std::string>& cells);
  nlohmann::json json() const;

 private:
  std::string title_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string markdown(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows);

std::string number(double value, int digits);

Table attention_shapes(bool quick);
Table attention_growth_with_length(bool quick);
Table attention_growth_with_levels(bool quick);
Table attention_memory(bool quick);
Table decode_steps(bool quick);
Table prefill_chunks(bool quick);
Table downsample_shapes(bool quick);
Table training_steps(bool quick);
Table generation_steps(bool quick);
Table inference(bool quick);

// On the first GPU.
bool can_use_cuda();
Table cuda_attention_shapes(bool quick);
Table cuda_attention_levels(bool quick);
Table cuda_attention_float32(bool quick);
Table cuda_attention_long(bool quick);
Table cuda_attention_grouped(bool quick);
Table cuda_attention_wide_heads(bool quick);
Table cuda_decode_steps(bool quick);
Table cuda_long_decode_steps(bool quick);
Table cuda_prefill_chunks(bool quick);
Table cuda_training_steps(bool quick);
Table cuda_language_training_steps(bool quick);
Table cuda_generation_steps(bool quick);

}  // namespace hkt::bench
