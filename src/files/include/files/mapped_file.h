// SPDX-License-Identifier: Apache-2.0
// A memory-mapped file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace hkt {

// A private mapping: writes to the bytes do not reach the file. Errors are std::runtime_error.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// Installs a SIGBUS handler: if another process truncates a mapped file while it is read, this process prints an error and
// exits with code 1 instead of crashing. For programs only: a library must not change its host's signal handlers.
void explain_truncated_files();

}  // namespace hkt
