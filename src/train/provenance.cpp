// Facts about this build and this machine.
#include "provenance.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <ctime>
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

std::string version() { return HKT_VERSION; }

std::string commit() { return HKT_COMMIT; }

nlohmann::ordered_json provenance() {
  const std::time_t now = std::time(nullptr);
  return {{"version", version()},
          {"commit", commit()},
          {"torch", TORCH_VERSION},
          {"processor", processor()},
          {"cpu_kernels", cpu_kernels()},
          {"threads", at::get_num_threads()},
          {"date", fmt::format("{:%F}", fmt::gmtime(now))}};
}

}  // namespace hkt::train
