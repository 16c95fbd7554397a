// Mapping files, by the calls of POSIX.
#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace hkt {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(path.string() + " is not a file that can be read: " + why + ".");
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(std::generic_category().message(errno));
  struct stat status = {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = regular ? static_cast<std::size_t>(status.st_size) : 0;
  void* address = size > 0 ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  ::close(file);
  if (!regular) fail("it is something else");
  if (address == MAP_FAILED) fail(std::generic_category().message(error));
  bytes_ = {static_cast<std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace hkt
