// SPDX-License-Identifier: Apache-2.0
// A config's section "data" as JSON, for files and flags; inside, the struct travels.
#pragma once

#include <string>

#include "files/json_fields.h"
#include "hkt/data_config.h"

namespace hkt {

// Sets what is there and leaves the rest as it is. Throws std::invalid_argument, in one sentence, for anything unknown, of
// the wrong type or out of range, and where two values contradict each other. to_json checks in the same way.
void read_json(const fields::Json& json, DataConfig& data);
fields::OrderedJson to_json(const DataConfig& data);

namespace data {

std::string task_name(Task task);

}  // namespace data
}  // namespace hkt
