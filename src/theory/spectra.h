// SPDX-License-Identifier: Apache-2.0
// The spectra of a head's kernels as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "hkt/modules.h"
#include "hkt/theory.h"

namespace hkt::theory {

// One kernel, or one of each level with projections per level.
inline nlohmann::ordered_json spectra_of(const HierarchicalAttentionImpl& attention, std::int64_t head,
                                         bool with_eigenvalues) {
  const auto& config = attention.config();
  const std::int64_t kernels = config.projections == Projections::per_level ? config.levels : 1;
  auto all = nlohmann::ordered_json::array();
  for (std::int64_t level = 0; level < kernels; ++level) {
    const auto [query, key] = attention.projections(level);
    const auto spectrum = kernel_spectrum(query[head], key[head]);
    nlohmann::ordered_json entry = {{"negative_energy", spectrum.negative_energy},
                                    {"smallest_over_largest", spectrum.smallest_over_largest},
                                    {"semidefinite", spectrum.is_semidefinite}};
    if (with_eigenvalues) entry["eigenvalues"] = spectrum.eigenvalues;
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace hkt::theory
