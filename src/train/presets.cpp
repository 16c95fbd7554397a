// The presets, and configs made from them.
#include "presets.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "data/listops.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "files/regular_file.h"

namespace hkt::train {
namespace {

using nlohmann::json;

json listops(const std::string& preset) {
  const auto limits = data::listops_preset(preset);
  return {{"model", {{"max_length", limits.max_tokens}}},
          {"data",
           {{"task", "listops"},
            {"train_samples", limits.train_samples},
            {"validation_samples", limits.validation_samples},
            {"test_samples", limits.test_samples},
            {"max_depth", limits.max_depth},
            {"max_arguments", limits.max_arguments},
            {"min_tokens", limits.min_tokens},
            {"max_tokens", limits.max_tokens}}}};
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& preset : presets()) all.push_back(preset.name);
  return all;
}

json read_file(const std::filesystem::path& file) {
  std::string text;
  try {
    text = hkt::read_file(file);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
  try {
    Config::from_json(text);  // said of the file alone, before changes are laid over it
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  }
  return json::parse(text);
}

json start(const std::string& preset_or_file) {
  for (const auto& preset : presets()) {
    if (preset.name == preset_or_file) {
      auto config = preset.config;
      config["format"] = 1;
      return config;
    }
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(preset_or_file, error)) return read_file(preset_or_file);
  throw std::invalid_argument("\"" + preset_or_file + "\" is neither a preset (" + fields::quoted_list(names()) +
                              "; nearest: \"" + fields::nearest(preset_or_file, names()) + "\") nor a file.");
}

// JSON, or else the text as it stands.
json value_of(const std::string& text) {
  try {
    return fields::parse(text, "a value");
  } catch (const std::invalid_argument&) {
    if (text.starts_with('[') || text.starts_with('{')) throw;
    return text;
  }
}

// What only those who train need to agree.
void check(const Config& config) {
  if (config.data.task == Task::listops && config.data.max_tokens > config.model.max_length) {
    throw std::invalid_argument("data.max_tokens is " + std::to_string(config.data.max_tokens) +
                                "; it must be at most model.max_length, " + std::to_string(config.model.max_length) +
                                ", because an expression cannot be cut.");
  }
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"listops", "nested list operations, generated (T = 512)", listops("paper")},
      {"listops-lra", "the same as Long Range Arena has it (T = 2,000)", listops("lra")},
      {"scifar",
       "grey CIFAR-10 images, pixel by pixel (T = 1,024)",
       {{"model", {{"blocks", 1}, {"max_length", 1024}}}, {"train", {{"batch", 128}}}, {"data", {{"task", "scifar"}}}}},
      {"imdb",
       "film reviews, byte by byte (T = 1,024)",
       {{"model", {{"positions", "learned"}, {"max_length", 1024}}},
        {"train", {{"epochs", 12}}},
        {"data", {{"task", "imdb"}}}}},
      {"text",
       "your own labels and texts: --set data.train=FILE.tsv or FILE.jsonl, and data.test",
       {{"model", {{"positions", "rotary"}, {"max_length", 1024}}}, {"data", {{"task", "text"}}}}}};
  return all;
}

json changed(json config, const std::vector<std::string>& changes) {
  for (const auto& change : changes) {
    const auto dot = change.find('.'), equals = change.find('=');
    if (dot == std::string::npos || equals == std::string::npos || dot > equals) {
      throw std::invalid_argument("--set " + change + " is not of the form section.key=value, such as model.levels=1.");
    }
    const auto section = change.substr(0, dot);
    const std::vector<std::string> sections = {"model", "train", "data"};
    if (std::find(sections.begin(), sections.end(), section) == sections.end())
      fields::refuse_key("--set", section, sections);
    config[section][change.substr(dot + 1, equals - dot - 1)] = value_of(change.substr(equals + 1));
  }
  try {
    check(Config::from_json(config.dump()));
  } catch (const json::exception&) {
    throw std::invalid_argument("a key or value of the config is not UTF-8.");
  }
  return config;
}

json config_json(const std::string& preset_or_file, const std::vector<std::string>& changes) {
  return changed(start(preset_or_file), changes);
}

void make_paths_absolute(json& config) {
  if (!config.contains("data")) return;
  for (const char* key : {"train", "test", "source"}) {
    if (config["data"].value(key, "").empty()) continue;
    const auto path = std::filesystem::absolute(config["data"][key].get<std::string>()).string();
    if (!is_utf8(path)) {
      throw std::invalid_argument("data." + std::string(key) + " lies at " + quote(path) +
                                  ", which is not UTF-8; a run's config could not hold it.");
    }
    config["data"][key] = path;
  }
}

Config fit_to_data(const json& config, std::int64_t vocab, std::int64_t classes) {
  auto fitted = config;
  auto& model = fitted["model"];
  if (!model.contains("vocab")) model["vocab"] = vocab;
  if (!model.contains("classes")) model["classes"] = classes;
  const auto result = Config::from_json(fitted.dump());
  if (result.model.vocab < vocab) {
    throw std::invalid_argument("model.vocab is " + std::to_string(result.model.vocab) + "; the data needs at least " +
                                std::to_string(vocab) + ".");
  }
  if (result.model.classes != classes) {
    throw std::invalid_argument("model.classes is " + std::to_string(result.model.classes) + "; the data has " +
                                std::to_string(classes) + " labels.");
  }
  return result;
}

}  // namespace hkt::train
