// The experiments' models, derived from the presets.
#include "protocol.h"

#include <algorithm>
#include <stdexcept>

#include "files/json_fields.h"
#include "presets.h"

namespace hkt::train {
namespace {

using nlohmann::json;

json changed(json config, const std::vector<std::pair<std::string, json>>& model, const json& train = json::object()) {
  for (const auto& [key, value] : model) config["model"][key] = value;
  config["train"].update(train);
  return config;
}

// The feed-forward width with which standard attention has at least as many parameters as HKT.
std::int64_t matching_feedforward(const json& hkt) {
  const auto wanted = count_parameters(Config::from_json(hkt.dump()).model);
  auto standard = Config::from_json(hkt.dump()).model;
  standard.levels = 1;
  while (count_parameters(standard) < wanted) ++standard.feedforward;
  return standard.feedforward;
}

json preset_of(const std::string& task, Budget budget, std::vector<std::string> changes) {
  if (budget == Budget::quick) changes.insert(changes.begin(), task == "listops" ? "train.epochs=4" : "train.epochs=2");
  return config_json(task, changes);
}

}  // namespace

// By formula rather than by making the model, which would draw random numbers.
std::int64_t count_parameters(const ModelConfig& config) {
  const auto d = config.width, heads = config.heads, levels = config.levels;
  const auto sets = config.projections == Projections::per_level ? levels : 1;
  const auto head_width = d / heads;
  const auto query_key = sets * (config.psd == Psd::free ? 2 * d * d : d * d) +
                         (config.psd == Psd::cone ? sets * 2 * heads * head_width * head_width : 0);
  const auto filter = config.filter == Filter::dense       ? config.kernel_size * d * d
                      : config.filter == Filter::depthwise ? config.kernel_size * d
                                                           : 0;
  const auto alpha = levels > 1 && config.weights.kind == LevelWeights::Kind::learned ? heads * levels : 0;
  const auto feedforward = 2 * d * config.feedforward + config.feedforward + d;
  const auto block = query_key + 2 * d * d + (levels - 1) * filter + alpha + feedforward + 2 * 2 * d;
  const auto positions = config.positions == Positions::learned ? config.max_length * d : 0;
  return config.vocab * d + positions + config.blocks * block + 2 * d + d * config.classes + config.classes;
}

std::vector<std::string> protocol_tasks() { return {"listops", "scifar", "imdb"}; }

Protocol protocol(const std::string& task, Budget budget, const std::vector<std::string>& changes) {
  const auto known = protocol_tasks();
  if (std::find(known.begin(), known.end(), task) == known.end()) {
    throw std::invalid_argument("\"" + task + "\" is no experiment; there are " + fields::quoted_list(known) +
                                " and \"all\" (nearest: \"" + fields::nearest(task, known) + "\").");
  }
  for (const auto& change : changes) {
    if (change.starts_with("train.seed")) throw std::invalid_argument("the protocol sets train.seed itself.");
  }
  const auto hkt = preset_of(task, budget, changes);
  const auto standard = changed(hkt, {{"levels", 1}});
  const auto levels = std::to_string(Config::from_json(hkt.dump()).model.levels);
  Protocol result{task, {0}, {{"standard", "standard attention", standard, {}, {}}}};
  if (budget == Budget::quick) {
    result.models.push_back({"hkt", "HKT, " + levels + " levels", hkt, {}, {"standard"}});
    return result;
  }
  result.seeds = {0, 1, 2};
  const auto wide = changed(standard, {{"feedforward", matching_feedforward(hkt)}});
  const auto rotary = changed(standard, {{"positions", "rotary"}}),
             hkt_rotary = changed(hkt, {{"positions", "rotary"}});
  const std::vector<double> rates = {2.5e-4, 5e-4, 1e-3, 2e-3};
  result.models.push_back({"matched", "standard, as many parameters as HKT", wide, {}, {"standard"}});
  result.models.push_back(
      {"strong", "standard, rotary, learning rate chosen on validation", rotary, rates, {"standard"}});
  result.models.push_back({"hkt", "HKT, " + levels + " levels", hkt, {}, {"standard", "matched"}});
  result.models.push_back({"hkt-rotary", "HKT, " + levels + " levels, rotary", hkt_rotary, {}, {"standard", "strong"}});
  return result;
}

}  // namespace hkt::train
