// Loading a data set: its packed file, and which of its sequences are in which split.
#include "data/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "data/listops_expression.h"
#include "data/prepare.h"

namespace hkt::data {
namespace {

std::vector<std::int64_t> all_of(const PackedPart& part) {
  std::vector<std::int64_t> indices(part.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  return indices;
}

// Of each label the last ones go to validation, and at least one stays.
std::int64_t held_back(std::int64_t count, double share) {
  if (share <= 0 || count < 2) return 0;
  return std::clamp(std::llround(share * static_cast<double>(count)), 1LL, static_cast<long long>(count - 1));
}

void carve_validation(const Packed& packed, double share, Dataset& dataset) {
  const auto* labels = packed.train.labels.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> left(packed.labels.size());
  for (std::int64_t i = 0; i < packed.train.size(); ++i) ++left[labels[i]];
  for (auto& count : left) count -= held_back(count, share);
  std::vector<std::int64_t> train, validation;
  for (std::int64_t i = 0; i < packed.train.size(); ++i) (left[labels[i]]-- > 0 ? train : validation).push_back(i);
  const auto& [tokens, offsets, numbers] = packed.train;
  dataset.train = Split(tokens, offsets, numbers, std::move(train));
  dataset.validation = Split(tokens, offsets, numbers, std::move(validation));
}

// By content, so that it does not matter where or when the data was packed.
std::string fingerprint_of(const Packed& packed) {
  auto sum = crc32_z(0, nullptr, 0);
  for (const auto* part : {&packed.train, &packed.validation}) {
    for (const auto* tensor : {&part->tokens, &part->offsets, &part->labels}) {
      if (tensor->nbytes() > 0)
        sum = crc32_z(sum, static_cast<const Bytef*>(tensor->const_data_ptr()), tensor->nbytes());
    }
  }
  return "crc32:" + std::to_string(sum);
}

Split whole(const PackedPart& part) { return {part.tokens, part.offsets, part.labels, all_of(part)}; }

}  // namespace

Split::Split(at::Tensor tokens, at::Tensor offsets, at::Tensor labels, std::vector<std::int64_t> indices)
    : tokens_(std::move(tokens)),
      offsets_(std::move(offsets)),
      labels_(std::move(labels)),
      indices_(std::move(indices)) {}

std::span<const std::uint8_t> Split::tokens(std::int64_t i) const {
  const auto* offset = offsets_.const_data_ptr<std::int64_t>() + indices_.at(static_cast<std::size_t>(i));
  return {tokens_.const_data_ptr<std::uint8_t>() + offset[0], static_cast<std::size_t>(offset[1] - offset[0])};
}

std::int64_t Split::label(std::int64_t i) const {
  return labels_.const_data_ptr<std::int64_t>()[indices_.at(static_cast<std::size_t>(i))];
}

Dataset load(const DataConfig& config, const Notify& notify) {
  auto [path, packed, made, notices] = obtain(config, notify);
  Dataset dataset;
  dataset.labels = packed.labels;
  dataset.fingerprint = fingerprint_of(packed);
  dataset.vocab = packed.vocab;
  dataset.notices = std::move(notices);
  dataset.test = whole(packed.test);
  if (packed.validation.size() > 0) {
    dataset.train = whole(packed.train);
    dataset.validation = whole(packed.validation);
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
    throw std::invalid_argument("the text has a byte 0, with which sequences are padded; it may have any other.");
  }
  return {text.begin(), text.end()};
}

}  // namespace hkt::data
