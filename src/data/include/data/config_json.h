// SPDX-License-Identifier: Apache-2.0
// A config's section "data" as JSON, for files and flags; elsewhere the struct is passed.
#pragma once

#include <string>
#include <vector>

#include "files/json_fields.h"
#include "hkt/data_config.h"

namespace hkt {

// Sets the keys that are present and leaves the rest. Throws std::invalid_argument, in one sentence, for a key that is
// unknown, of the wrong type or out of range, and for values that contradict each other. to_json makes the same checks.
void read_json(const fields::Json& json, DataConfig& data);
fields::OrderedJson to_json(const DataConfig& data);

// The keys that mean something for this config, with its values.
std::vector<fields::KeyDescription> describe(const DataConfig& data);

namespace data {

std::vector<Task> all_tasks();
std::string task_name(Task task);

}  // namespace data
}  // namespace hkt
