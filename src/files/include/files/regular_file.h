// SPDX-License-Identifier: Apache-2.0
// Opening and reading regular files only: pipes and devices are refused, without waiting for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace hkt {

// Returns a descriptor, as open(2) does with these flags. Throws std::runtime_error, in one sentence, if the file cannot be
// opened or is not a regular file. Symbolic links are followed for reading, but not for writing: whoever planted the link
// would choose what is overwritten.
int open_regular(const std::filesystem::path& path, int flags);

// The contents of a file after its first `begin` bytes. Throws std::runtime_error as above, and for more than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t begin = 0,
                      std::size_t most = std::size_t{1} << 30);

}  // namespace hkt
