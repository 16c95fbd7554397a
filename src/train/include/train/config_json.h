// SPDX-License-Identifier: Apache-2.0
// A whole config as JSON, for files and flags; inside, the struct travels.
#pragma once

#include "files/json_fields.h"
#include "hkt/config.h"

namespace hkt {

// As Config::from_json and to_json, without the text.
Config config_from(const fields::Json& json);
fields::OrderedJson to_json(const Config& config);

}  // namespace hkt
