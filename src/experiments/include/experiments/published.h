// SPDX-License-Identifier: Apache-2.0
// Published results of the paper and of Long Range Arena, from published.json, which scripts/update-tables reads, too.
#pragma once

#include <nlohmann/json.hpp>

namespace hkt::experiments {

const nlohmann::ordered_json& published();

}  // namespace hkt::experiments
