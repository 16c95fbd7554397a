// Named configs to start from, and how changes are laid over them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hkt/config.h"

namespace hkt::train {

struct Preset {
  std::string name, what;
  nlohmann::json config;  // only what differs from the defaults
};
const std::vector<Preset>& presets();

// A config with "section.key=value" changes laid over it. The value is JSON, or a string as it stands.
nlohmann::json changed(nlohmann::json config, const std::vector<std::string>& changes);

// PRESET or the path of a JSON file, with changes laid over it. Throws std::invalid_argument for what is
// neither a preset nor a file.
nlohmann::json config_json(const std::string& preset_or_file, const std::vector<std::string>& changes);

// The paths of the data, if it has any.
void make_paths_absolute(nlohmann::json& config);

// What the data says of the model: vocab and classes. Throws std::invalid_argument where the config says otherwise.
Config fit_to_data(const nlohmann::json& config, std::int64_t vocab, std::int64_t classes);

}  // namespace hkt::train
