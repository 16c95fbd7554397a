// SPDX-License-Identifier: Apache-2.0
// Program version and machine, recorded with every measured number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hkt::train {

std::string processor();
std::vector<std::string> gpus();  // NVIDIA GPUs, as the driver names them
std::string version();            // of this project
std::string commit();             // this program was built from

// Version, commit, torch, processor, instruction set, GPUs, threads and date.
nlohmann::ordered_json provenance();

}  // namespace hkt::train
