// SPDX-License-Identifier: Apache-2.0
// Loading a data set: its packed file, and which of its sequences are in which split.
#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "data/config_json.h"
#include "data/listops_expression.h"
#include "data/prepare.h"

namespace hkt::data {
namespace {

// How many of a label's examples, its last ones, go to validation; at least one stays.
std::int64_t held_back(std::int64_t count, double share) {
  if (share <= 0 || count < 2) return 0;
  return std::clamp(std::llround(share * static_cast<double>(count)), 1LL, static_cast<long long>(count - 1));
}

void carve_validation(const Packed& packed, double share, Dataset& dataset) {
  const auto& labels = packed.train.labels;
  std::vector<std::int64_t> left(packed.labels.size());
  for (std::int64_t i = 0; i < packed.train.size(); ++i) ++left[labels[i]];
  for (auto& count : left) count -= held_back(count, share);
  std::vector<std::int64_t> train, validation;
  for (std::int64_t i = 0; i < packed.train.size(); ++i) (left[labels[i]]-- > 0 ? train : validation).push_back(i);
  dataset.train = Split(packed.train, std::move(train));
  dataset.validation = Split(packed.train, std::move(validation));
}

// Of the content, so it does not depend on where or when the data was packed.
std::string fingerprint_of(const Packed& packed) {
  return checksum_of({std::as_bytes(packed.train.tokens), std::as_bytes(packed.train.offsets),
                      std::as_bytes(packed.train.labels), std::as_bytes(packed.validation.tokens),
                      std::as_bytes(packed.validation.offsets), std::as_bytes(packed.validation.labels)});
}

}  // namespace

Split::Split(PackedPart part, std::vector<std::int64_t> indices)
    : part_(std::move(part)), indices_(std::move(indices)) {}

Split::Split(PackedPart part) : part_(std::move(part)), indices_(static_cast<std::size_t>(part_.size())) {
  std::iota(indices_.begin(), indices_.end(), std::int64_t{0});
}

std::span<const std::uint8_t> Split::tokens(std::int64_t i) const {
  return part_.sequence(indices_.at(static_cast<std::size_t>(i)));
}

std::int64_t Split::label(std::int64_t i) const {
  return part_.labels[static_cast<std::size_t>(indices_.at(static_cast<std::size_t>(i)))];
}

Dataset load(const DataConfig& config, const Notify& notify) {
  if (is_stream(config.task)) {
    throw std::invalid_argument("the task " + task_name(config.task) +
                                " is a stream of text without labels, for language models.");
  }
  auto [path, packed, made, notices] = obtain(config, notify);
  Dataset dataset;
  dataset.labels = packed.labels;
  dataset.fingerprint = fingerprint_of(packed);
  dataset.vocab = packed.vocab;
  dataset.notices = std::move(notices);
  dataset.test = Split(packed.test);
  if (packed.validation.size() > 0) {
    dataset.train = Split(packed.train);
    dataset.validation = Split(packed.validation);
  } else {
    carve_validation(packed, config.validation, dataset);
  }
  return dataset;
}

std::string token_text(Task task, std::uint8_t token) {
  if (task == Task::listops) return token < listops::vocab ? listops::text({&token, 1}) : "?";
  if (task == Task::scifar) return std::to_string(token);
  constexpr std::uint8_t space = 0x20, last = 0x7e;
  if (token >= space && token <= last) return {static_cast<char>(token)};
  constexpr std::string_view digits = "0123456789abcdef";
  return {'\\', 'x', digits[token / 16], digits[token % 16]};
}

std::vector<std::uint8_t> encode(Task task, std::string_view text) {
  if (task == Task::listops) return listops::parse(text);
  if (task == Task::scifar) throw std::invalid_argument("the task scifar takes images; a text cannot be one.");
  if (text.empty()) throw std::invalid_argument("the text is empty; it must have at least one byte.");
  if (text.find('\0') != std::string_view::npos) {
    throw std::invalid_argument(std::string("the text contains the byte 0, which ") +
                                (is_stream(task) ? "ends a document." : "is reserved for padding."));
  }
  return {text.begin(), text.end()};
}

}  // namespace hkt::data
