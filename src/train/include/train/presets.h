// SPDX-License-Identifier: Apache-2.0
// Named configs, and changes applied to them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hkt/config.h"

namespace hkt::train {

struct Preset {
  std::string name, what;
};
std::vector<Preset> presets();

// A config under construction. It remembers which keys are set, so that the data can decide others. It is always valid for
// training: an invalid change throws std::invalid_argument with a one-sentence message.
class ConfigDraft {
 public:
  explicit ConfigDraft(const std::string& preset_or_file);
  explicit ConfigDraft(const Config& config);  // all keys count as set

  // A copy with "section.key=value" changes applied. The value is parsed as JSON if possible, otherwise taken as a string.
  ConfigDraft with(const std::vector<std::string>& changes) const;
  // A copy with the model of another run, to start from its weights, and with changes applied to it; the number of classes
  // is left to the data.
  ConfigDraft started_from(const std::string& run, const ModelConfig& model,
                           const std::vector<std::string>& changes) const;
  // A copy in which the paths in it, if there are any, are absolute.
  ConfigDraft with_absolute_paths() const;

  // With defaults for keys that are not set.
  const Config& config() const { return config_; }
  // With the vocab and, for a classifier, the classes of the data; throws std::invalid_argument if these keys are set and do not fit the data.
  Config fitted_to(std::int64_t vocab, std::int64_t classes) const;

 private:
  void update();  // recomputes config_ from overrides_
  bool is_set(const char* model_key) const;

  nlohmann::json overrides_;  // the keys that are set
  Config config_;
};

}  // namespace hkt::train
