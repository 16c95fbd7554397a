// SPDX-License-Identifier: Apache-2.0
// Which program, on which machine: what is written beside every measured number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hkt::train {

std::string processor();
std::vector<std::string> gpus();  // of NVIDIA, as the driver names them
std::string version();            // of this project
std::string commit();             // it was built from

// Version, commit, torch, processor, instruction set, GPUs, threads and date.
nlohmann::ordered_json provenance();

}  // namespace hkt::train
