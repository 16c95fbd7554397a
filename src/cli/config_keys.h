// SPDX-License-Identifier: Apache-2.0
// The keys that a config of any task may have.
#pragma once

#include <string>
#include <vector>

#include "train/config_json.h"

namespace hkt::cli {

struct ConfigKey {
  fields::KeyDescription key;
  std::string tasks;  // which have it; empty: all of them
};

// In the order of config.json, each once, with the default of the first task that has it.
std::vector<ConfigKey> all_config_keys();

}  // namespace hkt::cli
