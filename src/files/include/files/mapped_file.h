// SPDX-License-Identifier: Apache-2.0
// A file as memory, read when it is touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace hkt {

// Private: what is written to the bytes never reaches the file. Errors are std::runtime_error.
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

// From here on a mapped file that another process makes shorter while it is read ends this process with a sentence and
// exit code 1, not with a crash. For programs alone: a library leaves its host's signals as they are.
void explain_truncated_files();

}  // namespace hkt
