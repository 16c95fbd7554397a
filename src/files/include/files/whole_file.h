// SPDX-License-Identifier: Apache-2.0
// A file that is written atomically: under a temporary name in the same folder, flushed, then renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace hkt {

// Errors are std::runtime_error. Without commit() the destructor removes the temporary file.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(const void* data, std::size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
};

// Removes the temporary files of killed writers from a folder. The caller must know that nobody is writing there.
void remove_partial_files(const std::filesystem::path& folder);

// Writes a text file atomically.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace hkt
