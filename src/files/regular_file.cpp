// SPDX-License-Identifier: Apache-2.0
// Regular files, with POSIX calls.
#include "files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace hkt {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, bool reads, const std::string& why) {
  throw std::runtime_error(path.string() + (reads ? " cannot be read: " : " could not be written: ") + why + ".");
}

std::string reason(int error) {
  return error == ELOOP ? "it is a symbolic link" : std::generic_category().message(error);
}

}  // namespace

int open_regular(const std::filesystem::path& path, int flags) {
  constexpr mode_t usual = 0666;  // less the umask
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  // O_NONBLOCK keeps open() from waiting for the other end of a pipe; it has no effect on regular files.
  const int file = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | (reads ? 0 : O_NOFOLLOW), usual);
  if (file < 0) fail(path, reads, errno == ENXIO ? "it is not a regular file" : reason(errno));
  struct stat status = {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) return file;
  ::close(file);
  fail(path, reads, "it is not a regular file");
}

std::string read_file(const std::filesystem::path& path, std::uint64_t begin, std::size_t most) {
  const int file = open_regular(path, O_RDONLY);
  ::lseek(file, static_cast<off_t>(begin), SEEK_SET);
  std::string content;
  constexpr std::size_t chunk = 1 << 16;
  ssize_t count = 0;
  do {
    const auto before = content.size();
    content.resize(before + chunk);
    do count = ::read(file, content.data() + before, chunk);
    while (count < 0 && errno == EINTR);
    content.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
  } while (count > 0 && content.size() <= most);
  const int error = errno;
  ::close(file);
  if (count < 0) fail(path, true, reason(error));
  if (content.size() > most) fail(path, true, "it has more than " + std::to_string(most) + " bytes");
  return content;
}

}  // namespace hkt
