// SPDX-License-Identifier: Apache-2.0
// Taking over the weights of another run, but for a head of other classes.
#include "train/initial_weights.h"

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "nn/config_json.h"

namespace hkt::train {
namespace {

constexpr std::string_view head = "head.";

// The keys of the two models that differ, with both values.
std::string differences(const ModelConfig& theirs, const ModelConfig& ours) {
  std::string list;
  std::map<std::string, fields::Json> values;
  for (const auto& key : describe(theirs)) values[key.key] = key.value;
  for (const auto& key : describe(ours)) {
    if (key.key == "model.classes" || values[key.key] == key.value) continue;
    list += (list.empty() ? "" : "; ") + key.key + " is " + values[key.key].dump() + " there and " + key.value.dump() +
            " here";
  }
  return list.empty() ? "its tensors have other shapes" : list;
}

TrainedModel loaded(const RunDirectory& from, const Warn& warn) try {
  return load_model(from, at::kCPU, warn);
} catch (const std::runtime_error& error) {  // a wrong argument of the user here
  throw std::invalid_argument(error.what());
}

}  // namespace

void start_from(const RunDirectory& from, const Identity& identity, TransformerImpl& model, const Warn& warn) {
  const auto trained = loaded(from, warn);
  const auto& [config, ours] = std::pair(trained.identity.config.model, identity.config.model);
  const bool new_head = ours.kind == ModelKind::classifier && trained.identity.labels != identity.labels;
  std::map<std::string, at::Tensor> stored;
  for (const auto& [name, tensor] : copy_of_parameters(*trained.model)) stored[name] = tensor;
  NamedTensors next = copy_of_parameters(model);
  std::size_t taken = 0;
  for (auto& [name, tensor] : next) {
    if (new_head && name.starts_with(head)) continue;
    const auto found = stored.find(name);
    if (config.kind != ours.kind || found == stored.end() || found->second.sizes() != tensor.sizes()) {
      throw std::invalid_argument("the weights of " + from.folder.string() +
                                  " do not fit this model: " + differences(config, ours) + ".");
    }
    tensor = found->second;
    ++taken;
  }
  std::size_t theirs = 0;
  for (const auto& [name, tensor] : stored) theirs += new_head && name.starts_with(head) ? 0 : 1;
  if (taken != theirs) {
    throw std::invalid_argument("the weights of " + from.folder.string() +
                                " do not fit this model: " + differences(config, ours) + ".");
  }
  set_parameters(model, next);
  if (new_head) warn("the classes are not those of " + from.folder.string() + ", so the head starts anew.");
}

}  // namespace hkt::train
