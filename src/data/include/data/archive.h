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

// Names are paths in the archive or relative to the folder, with "/" as separator.
using Wanted = std::function<bool(const std::string& name)>;
using TakeFile = std::function<void(const std::string& name, std::string bytes)>;

// Limits against archives that unpack to fill the memory; the official ones need a twentieth of this.
struct Limits {
  std::size_t file = std::size_t{1} << 30, total = std::size_t{1} << 32;  // bytes of one file, and of all
  std::int64_t files = 1'000'000;
};

// Passes each wanted file to `take`: files of a folder sorted by name, files of an archive in its order. Archives are
// .zip or .tar, the latter possibly compressed by gzip, bzip2, xz or zstd. Throws std::invalid_argument, in one sentence,
// for a truncated or damaged archive, for something that is not an archive, and for malicious ones: those that exceed the
// limits or have a name or link that points outside the folder they would be unpacked into.
void read_files(const std::filesystem::path& source, const Wanted& wanted, const TakeFile& take,
                const Notify& notify = {}, const Limits& limits = {});

// Changes when a wanted file of the source does: names, sizes and times.
std::string fingerprint_of_files(const std::filesystem::path& source, const Wanted& wanted);

// A whole file, which may be compressed by gzip, bzip2, xz or zstd.
std::string read_compressed(const std::filesystem::path& path);

}  // namespace hkt::data
