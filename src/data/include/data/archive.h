// SPDX-License-Identifier: Apache-2.0
// The files in a folder or an archive, read one after the other. Nothing is unpacked to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "data/dataset.h"

namespace hkt::data {

// By its name, as it stands in the archive or relative to the folder, with "/" between its parts.
using Wanted = std::function<bool(const std::string& name)>;
using TakeFile = std::function<void(const std::string& name, std::string bytes)>;

// What is unpacked at most. More is meant to fill the memory or to take for ever: the official sets have a twentieth.
struct Limits {
  std::size_t file = std::size_t{1} << 30, total = std::size_t{1} << 32;  // bytes of one file, and of all
  std::int64_t files = 1'000'000;
};

// Gives each wanted file to `take`: those of a folder sorted by name, those of an archive as they lie in it. Archives are
// .tar, as it is or compressed by gzip, bzip2, xz or zstd, and .zip. Throws std::invalid_argument, in one sentence, for
// one that is cut, damaged or no archive, and for one with a name or link that leads out of the folder in which it would
// be unpacked, or with more than the limits: who made such a one wanted to do harm.
void read_files(const std::filesystem::path& source, const Wanted& wanted, const TakeFile& take,
                const Notify& notify = {}, const Limits& limits = {});

// Changes when a wanted file of the source does: names, sizes and times.
std::string fingerprint_of_files(const std::filesystem::path& source, const Wanted& wanted);

// A whole file, which may be compressed by gzip, bzip2, xz or zstd.
std::string read_compressed(const std::filesystem::path& path);

}  // namespace hkt::data
