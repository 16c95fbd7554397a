// SPDX-License-Identifier: Apache-2.0
// The presets, and configs made from them.
#include "train/presets.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "data/config_json.h"
#include "data/listops.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "nn/config_json.h"
#include "train/config_json.h"

namespace hkt::train {
namespace {

using nlohmann::json;

struct NamedConfig {
  Preset preset;
  json overrides;  // of the defaults
};

// Byte language models: GPT-2's shape with rotary positions and no biases. The number of levels follows from the length,
// see default_levels.
json language(const json& model, const json& train, const json& data) {
  json config = {{"model",
                  {{"kind", "language"},
                   {"mask", "causal"},
                   {"positions", "rotary"},
                   {"filter", "depthwise"},
                   {"kernel_size", 4},
                   {"width", 256},
                   {"blocks", 6},
                   {"feedforward", 1024},
                   {"biases", false},
                   {"dropout", 0.0}}},
                 {"train",
                  {{"epochs", 10},
                   {"epoch_steps", 250},
                   {"learning_rate", 2e-3},
                   {"weight_decay", 0.1},
                   {"beta2", 0.95},
                   {"final_rate", 0.1},
                   {"validation_tokens", 262144}}},
                 {"data", data}};
  config["model"].update(model);
  config["train"].update(train);
  return config;
}

// Of a language model whose config does not say: coarse levels need length to pay.
std::int64_t default_levels(std::int64_t length) {
  constexpr std::int64_t long_context = 2048;
  return length < long_context ? 3 : 5;
}

json listops(const std::string& preset) {
  const auto data = data::listops_preset(preset);
  return {{"model", {{"max_length", data.max_tokens}}}, {"data", to_json(data)}};
}

const std::vector<NamedConfig>& named_configs() {
  static const std::vector<NamedConfig> all = {
      {{"listops", "nested list operations, generated (T = 512)"}, listops("paper")},
      {{"listops-lra", "the same as in Long Range Arena (T = 2,000)"}, listops("lra")},
      {{"scifar", "greyscale CIFAR-10 images, one token per pixel (T = 1,024)"},
       {{"model", {{"blocks", 1}, {"max_length", 1024}}}, {"train", {{"batch", 128}}}, {"data", {{"task", "scifar"}}}}},
      {{"imdb", "film reviews, one token per byte (T = 1,024)"},
       {{"model", {{"positions", "learned"}, {"max_length", 1024}}},
        {"train", {{"epochs", 12}}},
        {"data", {{"task", "imdb"}}}}},
      {{"text",
        "your own labels and texts: --set data.train=FILE (.csv, .tsv, .jsonl) or a folder by class, and data.test"},
       {{"model", {{"positions", "rotary"}, {"max_length", 1024}}}, {"data", {{"task", "text"}}}}},
      {{"lm", "a byte language model of your own text: --set data.train=FILE or FOLDER (T = 1,024)"},
       language({{"max_length", 1024}}, {{"batch", 32}}, {{"task", "lm"}, {"validation", 0.05}})},
      {{"enwik8", "a byte language model of Wikipedia (T = 4,096)"},
       language({{"max_length", 4096}}, {{"batch", 8}}, {{"task", "enwik8"}})},
      {{"shakespeare", "a byte language model of Shakespeare's plays, small (T = 256)"},
       language({{"max_length", 256}, {"width", 128}, {"blocks", 4}, {"feedforward", 512}, {"dropout", 0.1}},
                {{"batch", 32}, {"epochs", 8}}, {{"task", "shakespeare"}, {"validation", 0.05}})},
      {{"wikitext2", "a byte language model of Wikipedia articles (T = 1,024)"},
       language({{"max_length", 1024}}, {{"batch", 32}}, {{"task", "wikitext2"}})}};
  return all;
}

json read_config(const std::filesystem::path& file) {
  try {
    const auto config = fields::parse(read_file(file), "the config");
    config_from(config);  // checked before --set applies, so that errors name the file
    return config;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
}

json start(const std::string& preset_or_file) {
  std::vector<std::string> names;
  for (const auto& [preset, overrides] : named_configs()) {
    if (preset.name == preset_or_file) {
      auto config = overrides;
      config["format"] = 1;
      return config;
    }
    names.push_back(preset.name);
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(preset_or_file, error)) return read_config(preset_or_file);
  throw std::invalid_argument("\"" + preset_or_file + "\" is neither a preset (" + fields::quoted_list(names) +
                              "; nearest: \"" + fields::nearest(preset_or_file, names) + "\") nor a file.");
}

// Parsed as JSON if possible, otherwise taken as a string.
json value_of(const std::string& text) {
  try {
    return fields::parse(text, "a value");
  } catch (const std::invalid_argument&) {
    if (text.starts_with('[') || text.starts_with('{')) throw;
    return text;
  }
}

void change(json& config, const std::string& change) {
  const auto dot = change.find('.'), equals = change.find('=');
  if (dot == std::string::npos || equals == std::string::npos || dot > equals) {
    throw std::invalid_argument("--set " + change + " is not of the form section.key=value, such as model.levels=1.");
  }
  if (!is_utf8(change)) throw std::invalid_argument("a key or value of the config is not UTF-8.");
  const auto section = change.substr(0, dot);
  const std::vector<std::string> sections = {"model", "train", "data"};
  if (std::find(sections.begin(), sections.end(), section) == sections.end())
    fields::refuse_key("--set", section, sections);
  config[section][change.substr(dot + 1, equals - dot - 1)] = value_of(change.substr(equals + 1));
}

// Constraints between sections that only matter for training.
void check(const Config& config) {
  if (config.data.task == Task::listops && config.data.max_tokens > config.model.max_length) {
    throw std::invalid_argument("data.max_tokens is " + std::to_string(config.data.max_tokens) +
                                "; it must be at most model.max_length, " + std::to_string(config.model.max_length) +
                                ", because an expression cannot be cut.");
  }
  const bool stream = is_stream(config.data.task), language = config.model.kind == ModelKind::language;
  if (stream != language) {
    throw std::invalid_argument("model.kind is \"" + std::string(language ? "language" : "classifier") +
                                "\", and data.task is \"" + data::task_name(config.data.task) + "\", which is for " +
                                (stream ? "language models." : "classifiers."));
  }
  if (!stream && (config.train.epoch_steps > 0 || config.train.validation_tokens > 0)) {
    throw std::invalid_argument(
        "train.epoch_steps and train.validation_tokens are for language models; a classifier's epoch is a pass over "
        "its "
        "data, and all of its validation data is used.");
  }
  if (config.train.random_start > 1 && (stream || config.data.task == Task::listops)) {
    throw std::invalid_argument("train.random_start is " + std::to_string(config.train.random_start) +
                                (stream ? "; it is for classifiers, and a language model's windows begin anywhere."
                                        : "; it must be 1 for ListOps, whose expressions cannot be cut."));
  }
  if (stream && config.train.class_weights != ClassWeights::none) {
    throw std::invalid_argument("train.class_weights is for classifiers; a language model has no classes.");
  }
}

}  // namespace

std::vector<Preset> presets() {
  std::vector<Preset> all;
  for (const auto& named : named_configs()) all.push_back(named.preset);
  return all;
}

ConfigDraft::ConfigDraft(const std::string& preset_or_file) : overrides_(start(preset_or_file)) { update(); }

ConfigDraft::ConfigDraft(const Config& config) : overrides_(to_json(config)) { update(); }

void ConfigDraft::update() {
  config_ = config_from(overrides_);
  if (config_.model.kind == ModelKind::language && !is_set("levels"))
    config_.model.levels = default_levels(config_.model.max_length);
  check(config_);
}

ConfigDraft ConfigDraft::with(const std::vector<std::string>& changes) const {
  auto draft = *this;
  for (const auto& text : changes) change(draft.overrides_, text);
  draft.update();
  return draft;
}

ConfigDraft ConfigDraft::started_from(const std::string& run, const ModelConfig& model,
                                      const std::vector<std::string>& changes) const {
  auto draft = *this;
  json known = to_json(model);
  known.erase("classes");  // those of the data: a new head, if they are others
  draft.overrides_["model"] = std::move(known);
  draft.overrides_["train"]["init"] = run;
  for (const auto& text : changes) change(draft.overrides_, text);
  draft.update();
  return draft;
}

ConfigDraft ConfigDraft::with_absolute_paths() const {
  auto draft = *this;
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"data", "train"}, {"data", "test"}, {"data", "source"}, {"train", "init"}};
  for (const auto& [section, key] : keys) {
    if (!overrides_.contains(section) || overrides_[section].value(key, "").empty()) continue;
    const auto path = std::filesystem::absolute(overrides_[section][key].get<std::string>()).string();
    if (!is_utf8(path)) {
      throw std::invalid_argument(section + "." + key + " is at " + quote(path) +
                                  ", which is not UTF-8 and cannot be stored in a config.");
    }
    draft.overrides_[section][key] = path;
  }
  draft.update();
  return draft;
}

bool ConfigDraft::is_set(const char* model_key) const {
  return overrides_.contains("model") && overrides_["model"].contains(model_key);
}

Config ConfigDraft::fitted_to(std::int64_t vocab, std::int64_t classes) const {
  auto config = config_;
  if (!is_set("vocab")) config.model.vocab = vocab;
  if (config.model.kind == ModelKind::classifier && !is_set("classes")) config.model.classes = classes;
  if (config.model.vocab < vocab) {
    throw std::invalid_argument("model.vocab is " + std::to_string(config.model.vocab) + "; the data needs at least " +
                                std::to_string(vocab) + ".");
  }
  if (config.model.kind == ModelKind::classifier && config.model.classes != classes) {
    throw std::invalid_argument("model.classes is " + std::to_string(config.model.classes) + "; the data has " +
                                std::to_string(classes) + " labels.");
  }
  return config;
}

}  // namespace hkt::train
