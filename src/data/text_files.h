// SPDX-License-Identifier: Apache-2.0
// The files that a user's path means: one file, those in a folder, or those that match wildcards.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hkt::data {

struct TextFiles {
  std::vector<std::filesystem::path> paths;  // at least one, sorted
  bool named = false;                        // the path is that of the one file
};

// Of a folder all files count whose names match `pattern`, in folders within too; links to folders are not followed. With *
// or ? in any part of the path that does not exist as it is, all files that match count. Shell wildcards, by fnmatch(3).
// Hidden files and folders, whose names begin with a dot, do not count unless the path names them. Throws
// std::invalid_argument, in one sentence, if there is nothing of the kind, or more than a million files.
TextFiles text_files(const std::string& path, const std::string& pattern);

}  // namespace hkt::data
