// SPDX-License-Identifier: Apache-2.0
// Files that are written atomically, with POSIX calls.
#include "files/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace hkt {
namespace {

constexpr const char* partial_mark = ".partial-";

// Unpredictable, so that nobody can plant a link under that name, and distinct for every writer, even across containers.
std::string suffix() {
  std::uint64_t number = 0;
  if (::getentropy(&number, sizeof number) != 0) throw std::runtime_error("the system's random generator failed.");
  constexpr int digits = 16;
  std::array<char, digits + 1> text = {};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return partial_mark + std::string(text.data());
}

}  // namespace

WholeFile::WholeFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  std::error_code error;
  const auto kind = std::filesystem::status(path_, error).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular) {
    errno = kind == std::filesystem::file_type::directory ? EISDIR : EINVAL;  // rename() would replace a device
    fail("written");
  }
  temporary_ += suffix();
  constexpr mode_t usual = 0666;  // less the umask
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, usual);
  if (file_ < 0) fail("written");
}

WholeFile::~WholeFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void WholeFile::write(const void* data, std::size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written");
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void WholeFile::commit() {
  if (::fsync(file_) != 0) fail("flushed to the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed into place");
  ::close(std::exchange(file_, -1));
  // The new name survives a crash only once the folder is flushed too. File systems that cannot do that return EINVAL.
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;  // the folder is writable but not readable
  const bool flushed = ::fsync(directory) == 0 || errno == EINVAL;
  ::close(directory);
  if (!flushed) throw std::runtime_error("the folder of " + path_.string() + " could not be flushed to the disk.");
}

void WholeFile::fail(const std::string& what) const {
  throw std::runtime_error(path_.string() + " could not be " + what + ": " + std::generic_category().message(errno) +
                           ".");
}

void remove_partial_files(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const bool partial = entry.path().filename().string().find(partial_mark) != std::string::npos;
    if (partial && !entry.is_directory(error)) std::filesystem::remove(entry.path(), error);
  }
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  WholeFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace hkt
