// SPDX-License-Identifier: Apache-2.0
// Facts about this build and this machine.
#include "train/provenance.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "hkt/ops.h"
#include "version.h"

namespace hkt::train {

std::string processor() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// As NVIDIA's driver names them, whether or not this build can use them.
std::vector<std::string> gpus() {
  std::vector<std::string> all;
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream stream(gpu.path() / "information");
    for (std::string line; std::getline(stream, line);) {
      const auto name = line.find_first_not_of(" \t", line.find(':') + 1);
      if (line.starts_with("Model:") && name != std::string::npos) all.push_back(line.substr(name));
    }
  }
  return all;
}

std::string version() { return HKT_VERSION; }

std::string commit() { return HKT_COMMIT; }

nlohmann::ordered_json provenance() {
  const std::time_t now = std::time(nullptr);
  return {{"version", version()},
          {"commit", commit()},
          {"torch", TORCH_VERSION},
          {"processor", processor()},
          {"cpu_kernels", cpu_kernels()},
          {"gpus", gpus()},
          {"threads", at::get_num_threads()},
          {"date", fmt::format("{:%F}", fmt::gmtime(now))}};
}

}  // namespace hkt::train
