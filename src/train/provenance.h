// Which program, on which machine: what is written beside every measured number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hkt::train {

std::string processor();
std::string version();  // of this project
std::string commit();   // it was built from

// Version, commit, torch, processor, instruction set, threads and date.
nlohmann::ordered_json provenance();

}  // namespace hkt::train
