// SPDX-License-Identifier: Apache-2.0
// The data set that a model is trained on.
#pragma once

#include <cstdint>
#include <string>

namespace hkt {

enum class Task : std::uint8_t { listops, scifar, imdb, text };

struct DataConfig {
  Task task = Task::listops;

  // listops: the data set is generated from these numbers only
  std::int64_t seed = 0;
  std::int64_t train_samples = 40000;
  std::int64_t validation_samples = 2000;
  std::int64_t test_samples = 10000;
  std::int64_t max_depth = 10;
  std::int64_t max_arguments = 5;
  std::int64_t min_tokens = 8;
  std::int64_t max_tokens = 512;

  // scifar, imdb, text: the share of each label's training examples, from the end, that is held out for validation
  double validation = 0.1;

  // scifar, imdb: the official folder or archive; empty: the downloaded one
  std::string source;

  // text: files of label and text, .tsv or .jsonl; the test file may be absent
  std::string train;
  std::string test;

  bool operator==(const DataConfig&) const = default;
};

}  // namespace hkt
