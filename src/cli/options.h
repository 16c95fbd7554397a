// SPDX-License-Identifier: Apache-2.0
// Options that several commands share: the device, the number of threads, the page that is written.
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

// --out: refused before any work where no file can be put there.
void add_page_option(CLI::App& command, std::string& file);

// The device that was asked for; "auto" is CUDA where this build and this machine have it. Throws std::invalid_argument,
// with the reason, for one that is not there.
at::Device chosen_device(const MachineOptions& options);

// Whether, and else why not, CUDA can be used.
std::optional<std::string> why_no_cuda();

}  // namespace hkt::cli
