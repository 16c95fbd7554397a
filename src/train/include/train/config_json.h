// SPDX-License-Identifier: Apache-2.0
// A complete Config from and to a JSON object.
#pragma once

#include "files/json_fields.h"
#include "hkt/config.h"

namespace hkt {

// As Config::from_json and Config::to_json, but with a JSON object instead of text.
Config config_from(const fields::Json& json);
fields::OrderedJson to_json(const Config& config);

// The keys that mean something for this config, with its values.
std::vector<fields::KeyDescription> describe(const Config& config);

}  // namespace hkt
