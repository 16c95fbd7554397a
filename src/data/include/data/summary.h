// SPDX-License-Identifier: Apache-2.0
// What a user should know of a data set before training on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Lengths {
  std::int64_t shortest = 0, median = 0, longest = 0;  // in tokens
  std::int64_t most = 0;                               // of 95 % of the sequences
  double mean = 0;
};

struct SplitSummary {
  std::string name;
  std::int64_t sequences = 0;
  std::vector<std::int64_t> by_class = {};  // sequences of each label
  Lengths lengths = {};
  std::int64_t cut = 0;         // sequences that are longer than the model takes
  std::int64_t cut_tokens = 0;  // tokens that are lost there
  std::int64_t repeated = 0;    // sequences that occur earlier in the same split
};

struct Overlap {
  std::string first, second;   // names of splits
  std::int64_t sequences = 0;  // of the second that are in the first, too
};

struct Summary {
  std::vector<std::string> labels;
  std::vector<SplitSummary> splits;  // training, validation, and test if there is one
  std::vector<Overlap> overlaps;     // of each pair of splits
  std::int64_t contradictions = 0;   // training sequences that also occur with another label
  double largest_share = 0;          // of the most frequent label in training: what always guessing it scores
  double imbalance = 1;              // the most frequent label's sequences over the rarest one's
};

// max_length: how many tokens of a sequence the model takes.
Summary summarise(const Dataset& dataset, std::int64_t max_length);

// Sentences about what may be wrong with such data.
std::vector<std::string> warnings(const Summary& summary);

}  // namespace hkt::data
