// SPDX-License-Identifier: Apache-2.0
// Named configs to start from, and how changes are laid over them.
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

// A config while it is put together: it remembers what was asked for, so that the data can decide the rest. Always one that
// can be trained; whatever would not be throws std::invalid_argument in one sentence.
class ConfigDraft {
 public:
  explicit ConfigDraft(const std::string& preset_or_file);
  explicit ConfigDraft(const Config& config);  // all of which was asked for

  // "section.key=value" changes laid over it. The value is JSON, or a string as it stands.
  ConfigDraft with(const std::vector<std::string>& changes) const;
  // The paths of the data, if it has any, as they are named from the root.
  ConfigDraft with_absolute_paths() const;

  // With defaults for what was not asked for.
  const Config& config() const { return config_; }
  // With the vocab and classes of the data; throws std::invalid_argument where others were asked for.
  Config fitted_to(std::int64_t vocab, std::int64_t classes) const;

 private:
  void update();  // config_ after asked_ was changed

  nlohmann::json asked_;
  Config config_;
};

}  // namespace hkt::train
