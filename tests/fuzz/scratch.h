// SPDX-License-Identifier: Apache-2.0
// Files for targets: one in memory, or a folder of them that is gone with the process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace fuzz {

// Standard error as it was at the start: commands and libFuzzer put others in its place.
inline const int standard_error = ::dup(STDERR_FILENO);

// Ends the process, so that libFuzzer and the tests keep the input that led here.
[[noreturn]] inline void fail(const std::string& why) {
  ::dprintf(standard_error, "fuzz: %s\n", why.c_str());
  std::abort();
}

inline void require(bool holds, const char* promise) {
  if (!holds) fail(promise);
}

// A file in memory, with a path.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(file_)) {}
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Its path, once it holds these bytes and is read from their beginning.
  const std::filesystem::path& hold(const std::string& bytes) const {
    const bool held = ::ftruncate(file_, 0) == 0 &&
                      ::pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
                      ::lseek(file_, 0, SEEK_SET) == 0;
    if (!held) fail("a file in memory could not be written");
    return path_;
  }
  std::string text() const {
    std::string bytes(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
    require(::pread(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "a file in memory could not be read");
    return bytes;
  }
  int descriptor() const { return file_; }

 private:
  int file_;
  std::filesystem::path path_;
};

class Folder {
 public:
  Folder() : path_(base() / ("hkt-fuzz-" + std::to_string(::getpid()))) { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string holding(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }

 private:
  // Where TMPDIR says, or else in memory where that can be had: some disks take longer for a file than its reader.
  static std::filesystem::path base() {
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = std::getenv("TMPDIR") == nullptr && ::access(memory.c_str(), W_OK) == 0;
    return in_memory ? memory : std::filesystem::temp_directory_path();
  }

  std::filesystem::path path_;
};

}  // namespace fuzz
