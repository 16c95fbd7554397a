// SPDX-License-Identifier: Apache-2.0
// Packed files: which one belongs to a config, and how it is made.
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
  bool made = false;                 // and not there before
  std::vector<std::string> notices;  // sentences for the user
};

// The packed file of this config, made if it is not there, damaged or of other data. Throws std::invalid_argument for a
// source that is not there or not as it should be, std::runtime_error for a folder that cannot be written.
Obtained obtain(const DataConfig& config, const Notify& notify = {});

// Packs scifar or imdb from this folder or archive, to be used where a config names no source.
Obtained obtain_from(Task task, const std::string& source, const Notify& notify = {});

// The packed files of a task that are there, sorted by name.
std::vector<std::filesystem::path> packed_files(Task task);

}  // namespace hkt::data
