// SPDX-License-Identifier: Apache-2.0
// The JSON form of a config's section "model", for config files and --set; code uses the struct.
#pragma once

#include "files/json_fields.h"
#include "hkt/model_config.h"

namespace hkt {

// Sets the fields whose keys are present and keeps the others. Throws std::invalid_argument, in one sentence, for an unknown
// key, a wrong type, a value out of range, or values that contradict each other. to_json makes the same checks.
void read_json(const fields::Json& json, ModelConfig& model);
fields::OrderedJson to_json(const ModelConfig& model);

// The keys that mean something for this config, with its values.
std::vector<fields::KeyDescription> describe(const ModelConfig& model);

}  // namespace hkt
