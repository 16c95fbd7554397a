// SPDX-License-Identifier: Apache-2.0
// Labels and texts, one row after the other, from a file or a folder in any form that `data.train` may have.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "hkt/data_config.h"
#include "reading.h"

namespace hkt::data {

enum class RowForm : std::uint8_t { tsv, csv, jsonl, folder };

// A folder by what it is, a file by its extension; throws std::invalid_argument for another extension.
RowForm form_of(const std::filesystem::path& path);

struct Row {
  std::string label, text;
};
using TakeRow = std::function<void(const Row& row, const Refuse& refuse)>;

// Gives each row to `take`, with a function that refuses it by file and line. What was decided about the file's columns is
// added to `notices`. Throws std::invalid_argument, in one sentence, for whatever cannot be read.
void read_rows(const std::filesystem::path& path, const DataConfig& config, const TakeRow& take, const Notify& notify,
               std::vector<std::string>& notices);

// The files of a folder by class, FOLDER/CLASS/*.txt, sorted.
struct ClassFiles {
  std::string label;
  std::vector<std::filesystem::path> paths;  // at least one
};
std::vector<ClassFiles> classes_in(const std::filesystem::path& folder);

}  // namespace hkt::data
