// SPDX-License-Identifier: Apache-2.0
// Packed files: which one belongs to a config, and how it is built.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data {

struct Obtained {
  std::filesystem::path path;
  Packed packed;
  bool made = false;                 // built by this call
  std::vector<std::string> notices;  // sentences for the user
};

// The packed file of this config, built if it is missing, damaged or belongs to other data. Throws std::invalid_argument
// for a missing or malformed source, std::runtime_error for a folder that cannot be written.
Obtained obtain(const DataConfig& config, const Notify& notify = {});

// Packs a data set with an official archive from this file, folder or archive; configs without a source then use it.
Obtained obtain_from(Task task, const std::string& source, const Notify& notify = {});

// How much is in a packed file, for the user.
std::string summary(Task task, const Packed& packed);

// The existing packed files of a task, sorted by name.
std::vector<std::filesystem::path> packed_files(Task task);

}  // namespace hkt::data
