// SPDX-License-Identifier: Apache-2.0
// Checkpoints as safetensors files; prefixes of the tensor names separate the parts of the state.
#include "train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "files/json_fields.h"
#include "files/quote.h"

namespace hkt::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view parameter_prefix = "model/", optimizer_prefix = "optimizer/", best_prefix = "best/";
constexpr const char* generator_name = "generator/cpu";
constexpr const char* cuda_generator_name = "generator/cuda";

json to_json(const Tally& tally) { return {tally.loss, tally.correct, tally.predictions}; }

// Throws if the value is not an integer.
std::int64_t integer_from(const json& value) {
  if (!fields::is_integer(value, INT64_MIN, INT64_MAX)) throw std::invalid_argument("not an integer");
  return value;
}
Tally tally_from(const json& value) { return {value.at(0), integer_from(value.at(1)), integer_from(value.at(2))}; }

json to_json(const Position& position) {
  return {{"step", position.step},
          {"epoch", position.epoch},
          {"batch", position.batch},
          {"epoch_tally", to_json(position.epoch_tally)},
          {"recent_tally", to_json(position.recent_tally)},
          {"best_epoch", position.best_epoch},
          {"best_accuracy", position.best.accuracy},
          {"best_loss", position.best.loss},
          {"best_weighted_accuracy", position.best.weighted_accuracy},
          {"finished", position.finished},
          {"metrics_bytes", position.metrics_bytes},
          {"seconds", position.seconds}};
}

Position position_from(const json& value) {
  Position position;
  position.step = integer_from(value.at("step"));
  position.epoch = integer_from(value.at("epoch"));
  position.batch = integer_from(value.at("batch"));
  position.epoch_tally = tally_from(value.at("epoch_tally"));
  position.recent_tally = tally_from(value.at("recent_tally"));
  position.best_epoch = integer_from(value.at("best_epoch"));
  position.best.accuracy = value.at("best_accuracy");
  position.best.loss = value.at("best_loss");
  position.best.weighted_accuracy = value.value("best_weighted_accuracy", position.best.accuracy);  // older states
  position.finished = value.at("finished");
  position.metrics_bytes = static_cast<std::uint64_t>(integer_from(value.at("metrics_bytes")));
  position.seconds = value.at("seconds");
  return position;
}

Metadata to_metadata(const Identity& identity) {
  return {{"config", identity.config.to_json()}, {"labels", json(identity.labels).dump()}, {"data", identity.data}};
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw std::runtime_error(path.string() + " " + why + ".");
}

std::int64_t class_count(const ModelConfig& model) { return model.kind == ModelKind::classifier ? model.classes : 0; }

// The names of the classes: one per class of the model, no two alike. A language model has none.
std::vector<std::string> labels_from(const fs::path& path, const std::string& text, std::int64_t classes) {
  constexpr std::size_t longest = 256;
  const auto list = json::parse(text, nullptr, false);
  if (!list.is_array()) refuse(path, "has no list of labels");
  std::set<std::string> names;
  for (const auto& name : list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
        name.get_ref<const std::string&>().size() > longest) {
      refuse(path, "has a label that is not a string of 1 to 256 bytes");
    }
    if (!names.insert(name).second) refuse(path, "has the label " + quote(name.get<std::string>()) + " twice");
  }
  if (std::ssize(list) != classes) {
    refuse(path,
           "has " + std::to_string(list.size()) + " labels, but its model has " + std::to_string(classes) + " classes");
  }
  return list;
}

Identity identity_from(const fs::path& path, const Metadata& metadata) {
  for (const char* key : {"config", "labels", "data"}) {
    if (!metadata.contains(key))
      refuse(path, "was not written by hkt: its metadata has no \"" + std::string(key) + "\"");
  }
  Identity identity;
  try {
    identity.config = Config::from_json(metadata.at("config"));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path.string() + " has an invalid config: " + error.what());
  }
  identity.labels = labels_from(path, metadata.at("labels"), class_count(identity.config.model));
  identity.data = metadata.at("data");
  return identity;
}

// Compares the tensors of the file with the shapes that its config implies. This comes before the model is created, so that
// a malicious config cannot make it huge.
void check_parameters(const fs::path& path, const ModelConfig& config, const NamedTensors& parameters) {
  const auto most_blocks = static_cast<std::int64_t>(parameters.size());  // each block has several tensors
  if (config.blocks > most_blocks) refuse(path, "has fewer tensors than its config has blocks");
  const auto shapes = parameter_shapes(config);
  std::size_t found = 0;
  for (const auto& [name, tensor] : parameters) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end()) refuse(path, "has the tensor " + quote(name) + ", which its config does not define");
    if (tensor.sizes() != at::IntArrayRef(shape->second) || !tensor.is_floating_point()) {
      refuse(path, "has " + quote(name) + " as " + c10::toString(tensor.scalar_type()) + " " +
                       json(tensor.sizes().vec()).dump() +
                       ", but its config requires floating-point numbers of shape " + json(shape->second).dump());
    }
    ++found;
  }
  if (found == shapes.size()) return;
  for (const auto& [name, shape] : shapes) {
    const bool present =
        std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.first == name; });
    if (!present) refuse(path, "lacks the tensor " + quote(name));
  }
}

void append(NamedTensors& all, std::string_view prefix, const NamedTensors& part) {
  for (const auto& [name, tensor] : part) all.emplace_back(std::string(prefix) + name, tensor);
}

NamedTensors part_of(const NamedTensors& all, std::string_view prefix) {
  NamedTensors part;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) part.emplace_back(name.substr(prefix.size()), tensor);
  }
  return part;
}

// Undefined if there is no tensor of this name.
at::Tensor tensor_named(const NamedTensors& all, std::string_view name) {
  for (const auto& [found, tensor] : all) {
    if (found == name) return tensor;
  }
  return {};
}

// Requires a checksum: without one, damage could not be detected.
SafetensorsFile load_checked(const fs::path& path) {
  auto file = load_safetensors(path);
  if (file.checksum.empty()) refuse(path, "has no checksum, so it was not written by hkt");
  return file;
}

bool is_bytes(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kByte && tensor.dim() == 1;
}

// The checksum shows that a state is as it was written, but not that a run can reach its position.
void check_position(const fs::path& path, const Position& position, const TrainConfig& config,
                    std::int64_t steps_per_epoch) {
  constexpr std::int64_t most = std::int64_t{1} << 53;  // leaves room for later additions
  const auto is_count = [](const Tally& tally) {
    return std::isfinite(tally.loss) && tally.correct >= 0 && tally.correct <= tally.predictions &&
           tally.predictions <= most;
  };
  const auto last_epoch = config.epochs - (position.finished ? 0 : 1);
  const bool possible =
      position.epoch >= 0 && position.epoch <= last_epoch && position.batch >= 0 && position.batch <= steps_per_epoch &&
      position.step == position.epoch * steps_per_epoch + position.batch && position.best_epoch >= -1 &&
      position.best_epoch < position.epoch + 1 && is_count(position.epoch_tally) && is_count(position.recent_tally) &&
      std::isfinite(position.best.accuracy) && std::isfinite(position.best.loss) &&
      std::isfinite(position.best.weighted_accuracy) && position.seconds >= 0 && std::isfinite(position.seconds);
  if (!possible) refuse(path, "has an impossible training position");
}

// A run that goes on for another number of epochs than planned must have some of them before it.
void check_epochs(const State& state, const TrainConfig& config) {
  const auto& position = state.position;
  if (state.epochs == config.epochs) return;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("train.epochs is " + std::to_string(config.epochs) + ", but the run " + why + ".");
  };
  if (position.finished && position.epoch < state.epochs) {
    refuse("stopped early, after epoch " + std::to_string(position.epoch) + ", because train.patience is " +
           std::to_string(config.patience));
  }
  if (position.epoch >= config.epochs) {
    const auto begun = position.batch > 0 ? " and begun the next" : "";
    refuse("has finished " + std::to_string(position.epoch) + " epochs" + begun + " already; it must be more");
  }
}

State state_from(const fs::path& path, const Identity& identity, std::int64_t steps_per_epoch) {
  const auto file = load_checked(path);
  auto own = identity_from(path, file.metadata);
  const auto before = own.config.train;
  own.config.train.epochs = identity.config.train.epochs;
  if (own.config != identity.config) {
    throw std::runtime_error(path.string() + " has a different config than the folder's config.json.");
  }
  if (own.data != identity.data || own.labels != identity.labels) {
    throw std::invalid_argument("the data has changed since " + path.string() +
                                " was saved; restore the data, or start a new run.");
  }
  State state;
  state.epochs = before.epochs;
  try {
    state.position = position_from(json::parse(file.metadata.at("position")));
  } catch (const std::exception&) {
    refuse(path, "has no valid training position");
  }
  check_position(path, state.position, before, steps_per_epoch);
  check_epochs(state, identity.config.train);
  state.parameters = part_of(file.tensors, parameter_prefix);
  state.optimizer = part_of(file.tensors, optimizer_prefix);
  state.best = part_of(file.tensors, best_prefix);
  state.generator = tensor_named(file.tensors, generator_name);
  state.cuda_generator = tensor_named(file.tensors, cuda_generator_name);
  check_parameters(path, identity.config.model, state.parameters);
  if (!state.best.empty()) check_parameters(path, identity.config.model, state.best);
  if (state.best.empty() != (state.position.best_epoch < 0))
    refuse(path, "has a best epoch without its weights, or the reverse");
  if (!is_bytes(state.generator) || (state.cuda_generator.defined() && !is_bytes(state.cuda_generator)))
    refuse(path, "lacks the state of the random number generator");
  return state;
}

}  // namespace

void save_state(const RunDirectory& run, const Identity& identity, const State& state) {
  NamedTensors tensors;
  append(tensors, parameter_prefix, state.parameters);
  append(tensors, optimizer_prefix, state.optimizer);
  append(tensors, best_prefix, state.best);
  tensors.emplace_back(generator_name, state.generator);
  if (state.cuda_generator.defined()) tensors.emplace_back(cuda_generator_name, state.cuda_generator);
  auto metadata = to_metadata(identity);
  metadata["position"] = to_json(state.position).dump();
  // The old state is renamed only when the new one is on disk, so that an interruption at any point leaves a good state.
  const auto next = run.folder / "state.next.safetensors";
  save_safetensors(next, tensors, metadata);
  if (fs::exists(run.state())) fs::rename(run.state(), run.previous_state());
  fs::rename(next, run.state());
}

std::optional<State> load_state(const RunDirectory& run, const Identity& identity, std::int64_t steps_per_epoch,
                                const Warn& warn) {
  std::string trouble;
  for (const auto& path : {run.state(), run.previous_state()}) {
    if (!fs::exists(path)) continue;
    try {
      auto state = state_from(path, identity, steps_per_epoch);
      if (!trouble.empty()) {
        warn(trouble + " Using the previous checkpoint, of step " + std::to_string(state.position.step) + ".");
        fs::rename(path, run.state());  // otherwise the next save would replace it with the damaged one
      }
      return state;
    } catch (const std::runtime_error& error) {
      if (trouble.empty()) trouble = error.what();
    }
  }
  if (!trouble.empty()) throw std::runtime_error(trouble);
  return {};
}

void save_model(const RunDirectory& run, const Identity& identity, const NamedTensors& parameters) {
  save_safetensors(run.model(), parameters, to_metadata(identity));
}

TrainedModel load_model(const RunDirectory& run, at::Device device, const Warn& warn) {
  if (!fs::is_directory(run.folder)) {
    throw std::invalid_argument(run.folder.string() + " is not a folder; a run directory of hkt train is needed.");
  }
  std::string trouble;
  for (const auto& path : {run.model(), run.state(), run.previous_state()}) {
    if (!fs::exists(path)) continue;
    try {
      const bool is_model = path == run.model();
      const auto file = is_model ? load_safetensors(path) : load_checked(path);
      const auto parameters = is_model ? file.tensors : part_of(file.tensors, best_prefix);
      if (parameters.empty()) continue;  // saved before the end of the first epoch
      TrainedModel trained{identity_from(path, file.metadata), is_model ? file.checksum : "", nullptr};
      check_parameters(path, trained.identity.config.model, parameters);
      trained.model = create_model(trained.identity.config.model);
      set_parameters(*trained.model, parameters);
      trained.model->to(device);
      trained.model->eval();
      if (!is_model && trouble.empty()) trouble = run.model().string() + " does not exist.";
      if (!is_model) warn(trouble + " Using the best weights in " + path.filename().string() + ".");
      return trained;
    } catch (const std::runtime_error& error) {
      if (trouble.empty()) trouble = error.what();
    }
  }
  if (!trouble.empty()) throw std::runtime_error(trouble);
  throw std::invalid_argument(run.folder.string() +
                              " contains no model: it is not a run directory, or its run has not finished an epoch.");
}

NamedTensors copy_of_parameters(const torch::nn::Module& module) {
  NamedTensors copies;
  for (const auto& parameter : module.named_parameters()) {
    copies.emplace_back(parameter.key(), parameter.value().detach().to(at::kCPU, false, true));
  }
  return copies;
}

void set_parameters(torch::nn::Module& module, const NamedTensors& parameters) {
  const std::map<std::string, at::Tensor> stored(parameters.begin(), parameters.end());
  const at::NoGradGuard no_grad;
  for (const auto& parameter : module.named_parameters()) {
    const auto found = stored.find(parameter.key());
    if (found == stored.end() || found->second.sizes() != parameter.value().sizes()) {
      throw std::runtime_error("the checkpoint's tensor \"" + parameter.key() + "\" is missing or has another shape.");
    }
    at::Tensor(parameter.value()).copy_(found->second);
  }
}

}  // namespace hkt::train
