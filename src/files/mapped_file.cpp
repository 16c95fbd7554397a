// SPDX-License-Identifier: Apache-2.0
// Memory-mapped files, with POSIX calls.
#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "files/quote.h"
#include "files/regular_file.h"

namespace hkt {
namespace {

// The mappings, for the signal handler, which may neither lock nor allocate. It cannot name those that do not fit here.
struct Mapping {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0, end = 0;
  std::array<char, 512> name = {};
};
std::array<Mapping, 64> mappings;

void add_mapping(const std::filesystem::path& path, std::span<std::byte> bytes) {
  for (auto& mapping : mappings) {
    if (mapping.taken.exchange(true)) continue;
    const auto name = printable(path.string()).substr(0, mapping.name.size() - 1);
    std::memcpy(mapping.name.data(), name.c_str(), name.size() + 1);
    mapping.end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
    mapping.begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    return;
  }
}

void remove_mapping(std::span<std::byte> bytes) {
  for (auto& mapping : mappings) {
    if (mapping.begin != reinterpret_cast<std::uintptr_t>(bytes.data())) continue;
    mapping.begin = mapping.end = 0;
    mapping.taken = false;
    return;
  }
}

void print_error(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const auto& mapping : mappings) {
    if (address < mapping.begin || address >= mapping.end) continue;
    print_error("\nhkt: ");
    print_error(mapping.name.data());
    print_error(" was truncated by another process while it was read.\n");
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // not one of ours: the access fails again and ends the process as usual
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = open_regular(path, O_RDONLY);
  struct stat status = {};
  const auto size = ::fstat(file, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  void* address = size > 0 ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  ::close(file);
  if (address == MAP_FAILED) {
    throw std::runtime_error(path.string() + " cannot be read: " + std::generic_category().message(error) + ".");
  }
  bytes_ = {static_cast<std::byte*>(address), size};
  if (size > 0) add_mapping(path, bytes_);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  remove_mapping(bytes_);
  ::munmap(bytes_.data(), bytes_.size());
}

void explain_truncated_files() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace hkt
