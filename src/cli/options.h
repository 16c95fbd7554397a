// Options that several commands share: the device and the number of threads.
#pragma once

#include <ATen/Device.h>

#include <CLI/App.hpp>
#include <optional>
#include <string>

namespace hkt::cli {

struct MachineOptions {
  std::string device = "auto";
  std::optional<int> threads;
};
void add_machine_options(CLI::App& command, MachineOptions& options);

// The device that was asked for; "auto" is CUDA where this build and this machine have it. Throws std::invalid_argument,
// with the reason, for one that is not there.
at::Device chosen_device(const MachineOptions& options);

// Whether, and else why not, CUDA can be used.
std::optional<std::string> why_no_cuda();

void warn(const std::string& sentence);  // to standard error

}  // namespace hkt::cli
