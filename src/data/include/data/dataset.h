// SPDX-License-Identifier: Apache-2.0
// Data sets as training sees them: sequences of bytes, a label for each, three splits.
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

// Some of the sequences of a packed file, which stays mapped while a split of it lives.
class Split {
 public:
  Split() = default;
  // indices: those of the part's sequences that are in this split.
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
  Split train, validation, test;     // test is empty where the user gave none
  std::vector<std::string> labels;   // the names of the classes
  std::string fingerprint;           // of what is there to learn from and to validate with
  std::int64_t vocab = 256;          // tokens are below this; 0 is what sequences are padded with
  std::vector<std::string> notices;  // sentences for the user, such as that a damaged file was made anew
};

// Tells how far a long piece of work is: what is done, of how much, and which piece it is.
using Notify = std::function<void(std::int64_t done, std::int64_t total, const std::string& what)>;

// From the packed cache if that is there and whole, else prepared anew and packed. Throws std::invalid_argument, in one
// sentence, for data that is not there or not as it should be.
Dataset load(const DataConfig& config, const Notify& notify = {});

// A token of that task, for people to read: an operator or digit, a character or \\xNN, a grey value.
std::string token_text(Task task, std::uint8_t token);

// A line of text as tokens of that task; throws std::invalid_argument where it is none (scifar takes no text).
std::vector<std::uint8_t> encode(Task task, std::string_view text);

}  // namespace hkt::data
