// SPDX-License-Identifier: Apache-2.0
// Data sets for training: byte sequences with labels, in three splits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/packed.h"
#include "hkt/data_config.h"

namespace hkt::data {

// Some sequences of a packed file, which stays mapped as long as a split of it exists.
class Split {
 public:
  Split() = default;
  // indices: the sequences of the part that are in this split.
  Split(PackedPart part, std::vector<std::int64_t> indices);
  explicit Split(PackedPart part);  // all of them

  std::int64_t size() const { return static_cast<std::int64_t>(indices_.size()); }
  std::span<const std::uint8_t> tokens(std::int64_t i) const;
  std::int64_t label(std::int64_t i) const;

 private:
  PackedPart part_;
  std::vector<std::int64_t> indices_;
};

struct Dataset {
  Split train, validation, test;     // test is empty if the user gave none
  std::vector<std::string> labels;   // the names of the classes
  std::string fingerprint;           // of the training and validation data
  std::int64_t vocab = 256;          // tokens are below this; 0 is padding
  std::vector<std::string> notices;  // sentences for the user, such as that a damaged file was rebuilt
};

// Reports progress of long work: `done` of `total`, and a description of the current step.
using Notify = std::function<void(std::int64_t done, std::int64_t total, const std::string& what)>;

// From the packed cache if it is intact, otherwise prepared and packed. Throws std::invalid_argument, in one sentence, for
// missing or malformed data.
Dataset load(const DataConfig& config, const Notify& notify = {});

// A token of that task as readable text: an operator or digit, a character or \\xNN, a grey value.
std::string token_text(Task task, std::uint8_t token);

// A line of text as tokens of that task; throws std::invalid_argument for invalid text (scifar takes none at all).
std::vector<std::uint8_t> encode(Task task, std::string_view text);

}  // namespace hkt::data
