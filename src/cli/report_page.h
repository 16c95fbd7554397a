// SPDX-License-Identifier: Apache-2.0
// The page about trained models, which several commands write.
#pragma once

#include <string>
#include <vector>

namespace hkt::cli {

// Writes one page about runs, experiments or folders of experiments; returns the sentences that answer what they compare.
std::vector<std::string> write_report(const std::vector<std::string>& paths, const std::string& file);

}  // namespace hkt::cli
