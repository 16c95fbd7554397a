// SPDX-License-Identifier: Apache-2.0
// Mapping files, by the calls of POSIX.
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

// What is mapped where, for the signal's handler, which may neither lock nor ask for memory. Mappings beyond the table are
// not named.
struct Place {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0, end = 0;
  std::array<char, 512> name = {};
};
std::array<Place, 64> places;

void enter(const std::filesystem::path& path, std::span<std::byte> bytes) {
  for (auto& place : places) {
    if (place.taken.exchange(true)) continue;
    const auto name = printable(path.string()).substr(0, place.name.size() - 1);
    std::memcpy(place.name.data(), name.c_str(), name.size() + 1);
    place.end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
    place.begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    return;
  }
}

void leave(std::span<std::byte> bytes) {
  for (auto& place : places) {
    if (place.begin != reinterpret_cast<std::uintptr_t>(bytes.data())) continue;
    place.begin = place.end = 0;
    place.taken = false;
    return;
  }
}

void say(const char* text) { [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text)); }

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const auto& place : places) {
    if (address < place.begin || address >= place.end) continue;
    say("\nhkt: ");
    say(place.name.data());
    say(" became shorter while it was read; another process changed it.\n");
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // something else: the access fails again, and ends the process as it would have
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
    throw std::runtime_error(path.string() +
                             " is not a file that can be read: " + std::generic_category().message(error) + ".");
  }
  bytes_ = {static_cast<std::byte*>(address), size};
  if (size > 0) enter(path, bytes_);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  leave(bytes_);
  ::munmap(bytes_.data(), bytes_.size());
}

void explain_truncated_files() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace hkt
