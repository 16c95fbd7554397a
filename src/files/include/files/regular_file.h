// SPDX-License-Identifier: Apache-2.0
// Opening and reading regular files, whatever lies under their names: a pipe is not waited for, a device not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace hkt {

// A descriptor, as open(2) gives it; `flags` are its flags. Throws std::runtime_error, in one sentence, where the file
// cannot be opened or is no regular file. To be read it may be reached by a symbolic link; to be written it may not, for
// who planted the link chose what is overwritten.
int open_regular(const std::filesystem::path& path, int flags);

// All of a file, or what follows its first `begin` bytes. Throws std::runtime_error as above, and for more than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t begin = 0,
                      std::size_t most = std::size_t{1} << 30);

}  // namespace hkt
