// SPDX-License-Identifier: Apache-2.0
// Which columns of a CSV or TSV file hold the label and the text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hkt/data_config.h"

namespace hkt::data {

struct Columns {
  bool header = false;  // the first record names the columns
  std::size_t label = 0, text = 1, count = 2;
};

// The first record decides, with what the config says. Throws std::invalid_argument, which lists the columns.
Columns columns_of(const std::filesystem::path& path, const std::vector<std::string>& first, const DataConfig& config);

// Of a file whose labels are of no interest: the column that config.text names.
struct TextColumn {
  bool header = false;
  std::size_t text = 0, count = 1;
};
TextColumn text_column_of(const std::filesystem::path& path, const std::vector<std::string>& first,
                          const DataConfig& config);

// Whether a word is a usual name of the column of labels, or of the column of texts.
bool names_labels(const std::string& word);
bool names_texts(const std::string& word);

}  // namespace hkt::data
