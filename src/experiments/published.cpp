// SPDX-License-Identifier: Apache-2.0
// published.json, embedded in the program.
#include "experiments/published.h"

#include "files/embedded.h"

namespace hkt::experiments {

HKT_EMBED(published_json, HKT_PUBLISHED_JSON)

const nlohmann::ordered_json& published() {
  static const auto json = nlohmann::ordered_json::parse(published_json());
  return json;
}

}  // namespace hkt::experiments
