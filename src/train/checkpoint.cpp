// Checkpoints as safetensors files: parts of the state are told apart by a prefix of their tensors' names.
#include "checkpoint.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace hkt::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view parameter_prefix = "model/", optimizer_prefix = "optimizer/", best_prefix = "best/";
constexpr const char* generator_name = "generator/cpu";
constexpr const char* cuda_generator_name = "generator/cuda";

json to_json(const Tally& tally) { return {tally.loss, tally.correct, tally.sequences}; }
Tally tally_from(const json& value) { return {value.at(0), value.at(1), value.at(2)}; }

json to_json(const Position& position) {
  return {{"step", position.step},
          {"epoch", position.epoch},
          {"batch", position.batch},
          {"epoch_tally", to_json(position.epoch_tally)},
          {"recent_tally", to_json(position.recent_tally)},
          {"best_epoch", position.best_epoch},
          {"best_accuracy", position.best_accuracy},
          {"best_loss", position.best_loss},
          {"finished", position.finished},
          {"metrics_bytes", position.metrics_bytes},
          {"seconds", position.seconds}};
}

Position position_from(const json& value) {
  Position position;
  position.step = value.at("step");
  position.epoch = value.at("epoch");
  position.batch = value.at("batch");
  position.epoch_tally = tally_from(value.at("epoch_tally"));
  position.recent_tally = tally_from(value.at("recent_tally"));
  position.best_epoch = value.at("best_epoch");
  position.best_accuracy = value.at("best_accuracy");
  position.best_loss = value.at("best_loss");
  position.finished = value.at("finished");
  position.metrics_bytes = value.at("metrics_bytes");
  position.seconds = value.at("seconds");
  return position;
}

Metadata to_metadata(const Identity& identity) {
  return {{"config", identity.config.to_json()}, {"labels", json(identity.labels).dump()}, {"data", identity.data}};
}

Identity identity_from(const fs::path& path, const Metadata& metadata) {
  try {
    return {Config::from_json(metadata.at("config")), json::parse(metadata.at("labels")), metadata.at("data")};
  } catch (const std::exception&) {
    throw std::runtime_error(path.string() + " was not written by hkt: it holds no config and names of labels.");
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

at::Tensor one_of(const NamedTensors& all, std::string_view name) {
  for (const auto& [found, tensor] : all) {
    if (found == name) return tensor;
  }
  return {};
}

// A file of ours, whole: without a checksum nobody could tell.
SafetensorsFile load_checked(const fs::path& path) {
  auto file = load_safetensors(path);
  if (file.checksum.empty())
    throw std::runtime_error(path.string() + " has no checksum, so it was not written by hkt.");
  return file;
}

State state_from(const fs::path& path, const Identity& identity) {
  const auto file = load_checked(path);
  const auto own = identity_from(path, file.metadata);
  if (own.config != identity.config) {
    throw std::runtime_error(path.string() + " belongs to a run with another config than the folder's config.json.");
  }
  if (own.data != identity.data || own.labels != identity.labels) {
    throw std::invalid_argument("the data is not what " + path.string() +
                                " was trained on; bring that back, or begin a new run.");
  }
  State state;
  try {
    state.position = position_from(json::parse(file.metadata.at("position")));
  } catch (const std::exception&) {
    throw std::runtime_error(path.string() + " does not say where its run stood.");
  }
  state.parameters = part_of(file.tensors, parameter_prefix);
  state.optimizer = part_of(file.tensors, optimizer_prefix);
  state.best = part_of(file.tensors, best_prefix);
  state.generator = one_of(file.tensors, generator_name);
  state.cuda_generator = one_of(file.tensors, cuda_generator_name);
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
  // The old state steps aside only when the new one is on the disk; whenever this is cut short, one good state is left.
  const auto next = run.folder / "state.next.safetensors";
  save_safetensors(next, tensors, metadata);
  if (fs::exists(run.state())) fs::rename(run.state(), run.previous_state());
  fs::rename(next, run.state());
}

std::optional<State> load_state(const RunDirectory& run, const Identity& identity, const Warn& warn) {
  std::string trouble;
  for (const auto& path : {run.state(), run.previous_state()}) {
    if (!fs::exists(path)) continue;
    try {
      auto state = state_from(path, identity);
      if (!trouble.empty()) {
        warn(trouble + " The checkpoint before it, of step " + std::to_string(state.position.step) + ", is used.");
        fs::rename(path, run.state());  // or the damaged one would take its place when the next is saved
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
      if (parameters.empty()) continue;  // no epoch was finished then
      TrainedModel trained{identity_from(path, file.metadata), is_model ? file.checksum : "", nullptr};
      trained.model = Classifier(trained.identity.config.model);
      set_parameters(*trained.model, parameters);
      trained.model->to(device);
      trained.model->eval();
      if (!is_model && trouble.empty()) trouble = run.model().string() + " is not there.";
      if (!is_model) warn(trouble + " The weights are taken from " + path.filename().string() + ".");
      return trained;
    } catch (const std::runtime_error& error) {
      if (trouble.empty()) trouble = error.what();
    }
  }
  if (!trouble.empty()) throw std::runtime_error(trouble);
  throw std::invalid_argument(run.folder.string() +
                              " holds no model: it is not a run directory, or its run has not finished an epoch.");
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
      throw std::runtime_error("the checkpoint's \"" + parameter.key() + "\" is missing or has another shape.");
    }
    at::Tensor(parameter.value()).copy_(found->second);
  }
}

}  // namespace hkt::train
