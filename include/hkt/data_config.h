// SPDX-License-Identifier: Apache-2.0
// The data set that a model is trained on.
#pragma once

#include <cstdint>
#include <string>

namespace hkt {

enum class Task : std::uint8_t { listops, scifar, imdb, text, lm, enwik8, shakespeare, wikitext2 };

// Whether the data is a stream of tokens without labels, for language models.
constexpr bool is_stream(Task task) {
  return task == Task::lm || task == Task::enwik8 || task == Task::shakespeare || task == Task::wikitext2;
}

// Whether a file has something: automatic means that its name or content decides.
enum class Presence : std::uint8_t { automatic, yes, no };

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
  // lm, shakespeare: the share of the stream, from its end, and the same again for test where there is no test file;
  // 0.05 is usual there. enwik8 and wikitext2 have official splits.
  double validation = 0.1;

  // scifar, imdb, enwik8, shakespeare, wikitext2: the official file, folder or archive; empty: the downloaded one
  std::string source;

  // text: files of labels and texts, .csv, .tsv or .jsonl, or folders of .txt files by class; test may be empty
  // lm: a file, a folder, or a path with wildcards in it, which means all files that match; test may be empty
  std::string train;
  std::string test;

  // text: the column of the texts and that of the labels, by name or by number from 1, or the keys in .jsonl; empty: found by
  // the usual names, or the second of two columns and the first
  std::string text;
  std::string label;
  Presence header = Presence::automatic;  // whether the first line of a .csv or .tsv names the columns
  Presence quotes = Presence::automatic;  // whether fields may be in quotes, by RFC 4180: in .csv they may, in .tsv not

  // lm: the names of files that count inside a folder, with wildcards
  std::string pattern = "*";

  bool operator==(const DataConfig&) const = default;
};

}  // namespace hkt
