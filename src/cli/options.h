// SPDX-License-Identifier: Apache-2.0
// Options that several commands share: device, threads, and the HTML page to write.
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

// --out; refused before any work if no file can be created there.
void add_page_option(CLI::App& command, std::string& file);

// The requested device; "auto" is CUDA if this build and this machine have it. Throws std::invalid_argument, with the
// reason, for an unavailable one.
at::Device chosen_device(const MachineOptions& options);

// Why CUDA cannot be used; nullopt if it can.
std::optional<std::string> why_no_cuda();

}  // namespace hkt::cli
