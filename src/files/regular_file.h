// Opening and reading regular files, whatever lies under their names: a pipe is not waited for, a device not read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "hkt/export.h"

namespace hkt {

// A descriptor, as open(2) gives it; `flags` are its flags. Throws std::runtime_error, in one sentence, where the file
// cannot be opened or is no regular file. To be read it may be reached by a symbolic link; to be written it may not, for
// who planted the link chose what is overwritten.
HKT_EXPORT int open_regular(const std::filesystem::path& path, int flags);

// All of a file. Throws std::runtime_error as above, and for one of more than `most` bytes.
HKT_EXPORT std::string read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace hkt
