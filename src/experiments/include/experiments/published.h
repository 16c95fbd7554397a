// SPDX-License-Identifier: Apache-2.0
// What the paper and its peers published, from published.json, which the scripts that write tables read too.
#pragma once

#include <nlohmann/json.hpp>

namespace hkt::experiments {

const nlohmann::ordered_json& published();

}  // namespace hkt::experiments
