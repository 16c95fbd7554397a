// SPDX-License-Identifier: Apache-2.0
// Options that several commands share.
#include "options.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace hkt::cli {

void add_machine_options(CLI::App& command, MachineOptions& options) {
  command.add_option("--device", options.device, "cpu, cuda, cuda:N, or auto")->capture_default_str();
  command.add_option("--threads", options.threads, "number of CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
}

std::optional<std::string> why_no_cuda() {
#ifndef HKT_WITH_CUDA
  return "this build has no CUDA support";
#else
  const auto attention = c10::Dispatcher::singleton().findSchema({"hkt::attention", ""});
  if (!attention || !attention->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
    return "no CUDA kernel of hkt::attention is registered";
  }
  if (!torch::cuda::is_available()) return "this machine has no GPU that torch can use";
  return {};
#endif
}

namespace {

// Every page that hkt writes begins like this. An empty file may be replaced too.
bool is_page(const std::filesystem::path& path) {
  constexpr std::string_view start = "<!doctype html>";
  std::ifstream stream(path, std::ios::binary);
  std::string found(start.size(), ' ');
  stream.read(found.data(), static_cast<std::streamsize>(start.size()));
  found.resize(static_cast<std::size_t>(stream.gcount()));
  std::transform(found.begin(), found.end(), found.begin(), [](unsigned char c) { return std::tolower(c); });
  return found.empty() || found == start;
}

}  // namespace

void add_page_option(CLI::App& command, std::string& file) {
  const auto unusable = [](const std::string& text) -> std::string {
    const std::filesystem::path path(text);
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      if (!std::filesystem::is_regular_file(path, error)) return text + " exists and is not a regular file.";
      if (!is_page(path)) return text + " exists and is not an HTML page; only HTML pages are overwritten.";
    }
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    return std::filesystem::is_directory(folder, error)
               ? ""
               : text + " cannot be created: " + folder.string() + " is not a folder.";
  };
  command.add_option("--out", file, "the HTML page to write")->capture_default_str()->check(unusable);
}

at::Device chosen_device(const MachineOptions& options) {
  if (options.device == "cpu") return at::kCPU;
  const auto trouble = why_no_cuda();
  if (options.device == "auto") return trouble ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  int index = 0;
  const std::string prefix = "cuda:";
  const bool numbered = options.device.starts_with(prefix);
  if (numbered) {
    const char* end = options.device.data() + options.device.size();
    const auto [rest, error] = std::from_chars(options.device.data() + prefix.size(), end, index);
    if (error != std::errc() || rest != end || index < 0) index = -1;
  }
  if ((options.device != "cuda" && !numbered) || index < 0) {
    throw std::invalid_argument("--device is \"" + options.device + "\"; it must be cpu, cuda, cuda:N or auto.");
  }
  if (trouble) throw std::invalid_argument("--device is \"" + options.device + "\", but " + *trouble + ".");
  const auto count = torch::cuda::device_count();
  if (index >= count) {
    throw std::invalid_argument(
        fmt::format("--device is \"{}\", but this machine has {:d} GPUs.", options.device, count));
  }
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

}  // namespace hkt::cli
