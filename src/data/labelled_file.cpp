// SPDX-License-Identifier: Apache-2.0
// Reading a file as training does, and giving its sequences the labels and tokens of a model.
#include "data/labelled_file.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "files/json_fields.h"
#include "files/quote.h"

namespace hkt::data {
namespace {

Dataset load_all_of(const std::string& file, const DataConfig& how, const Notify& notify) {
  DataConfig config;
  config.task = Task::text;
  config.train = file;
  config.validation = 0;
  config.text = how.text;
  config.label = how.label;
  config.header = how.header;
  config.quotes = how.quotes;
  return load(config, notify);
}

[[noreturn]] void refuse(const std::string& file, std::int64_t i, const std::string& why) {
  throw std::invalid_argument("example " + std::to_string(i + 1) + " of " + file + " " + why);
}

std::vector<std::uint8_t> tokens_of(const std::string& file, std::int64_t i, const Split& split, Task task) {
  const auto bytes = split.tokens(i);
  try {
    return encode(task, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const std::invalid_argument& error) {
    refuse(file, i, std::string("cannot be scored: ") + error.what());
  }
}

// The place of a label among those of the model.
std::int64_t place_of(const std::string& file, std::int64_t i, const std::string& label,
                      const std::vector<std::string>& labels) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found != labels.end()) return found - labels.begin();
  refuse(file, i,
         "has the label " + quote(label) +
             ", which the model does not have (nearest: " + quote(fields::nearest(label, labels)) + ").");
}

}  // namespace

LabelledFile load_labelled_file(const std::string& file, const DataConfig& trained_on,
                                const std::vector<std::string>& labels, const Notify& notify) {
  auto dataset = load_all_of(file, trained_on, notify);
  const auto& found = dataset.train;
  std::vector<std::int64_t> places(dataset.labels.size(), -1);
  Sequences sequences;
  for (std::int64_t i = 0; i < found.size(); ++i) {
    const auto label = static_cast<std::size_t>(found.label(i));
    auto& place = places.at(label);
    if (place < 0) place = place_of(file, i, dataset.labels[label], labels);
    sequences.add(tokens_of(file, i, found, trained_on.task), place);
  }
  return {Split(part_of(std::move(sequences))), std::move(dataset.notices)};
}

}  // namespace hkt::data
