// SPDX-License-Identifier: Apache-2.0
// Walking folders and matching wildcards.
#include "text_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "files/quote.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_files = 1'000'000;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw std::invalid_argument(path.string() + " " + why + ".");
}

bool is_file(const fs::path& path) {
  std::error_code error;  // such as a link that leads to itself: not a file
  return fs::is_regular_file(path, error);
}

bool has_wildcard(const std::string& part) { return part.find_first_of("*?") != std::string::npos; }

std::vector<fs::path> files_below(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    const auto name = entry->path().filename().string();
    if (name.starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 && is_file(entry->path())) {
      files.push_back(entry->path());
      if (files.size() > most_files) refuse(folder, "has more than " + std::to_string(most_files) + " files");
    }
  }
  return files;
}

// What is in this folder and matches; nothing if it is not a folder.
std::vector<fs::path> matches_in(const fs::path& folder, const std::string& wildcards) {
  std::vector<fs::path> found;
  const fs::path place = folder.empty() ? "." : folder;
  std::error_code error;
  if (!fs::is_directory(place, error)) return found;
  for (const auto& entry : fs::directory_iterator(place)) {
    const auto name = entry.path().filename();
    if (::fnmatch(wildcards.c_str(), name.c_str(), FNM_PERIOD) == 0) found.push_back(folder / name);
  }
  return found;
}

std::vector<fs::path> files_that_match(const fs::path& path) {
  std::vector<fs::path> found = {fs::path()};
  for (const auto& part : path) {
    std::vector<fs::path> longer;
    for (const auto& begin : found) {
      const auto next = has_wildcard(part) ? matches_in(begin, part) : std::vector{begin / part};
      longer.insert(longer.end(), next.begin(), next.end());
    }
    if (longer.size() > most_files) refuse(path, "matches more than " + std::to_string(most_files) + " files");
    found = std::move(longer);
  }
  std::erase_if(found, [](const fs::path& candidate) { return !is_file(candidate); });
  return found;
}

TextFiles find(const fs::path& path, const std::string& pattern) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) {
    auto files = files_below(path, pattern);
    if (files.empty()) refuse(path, "has no file whose name matches " + quote(pattern) + " (hidden ones do not count)");
    return {std::move(files), false};
  }
  if (fs::exists(status)) return {{path}, true};
  if (!has_wildcard(path.string())) {
    refuse(path, "does not exist; it must be a file, a folder or a path with * or ? in it");
  }
  auto files = files_that_match(path);
  if (files.empty()) refuse(path, "matches no file (hidden ones do not count)");
  return {std::move(files), false};
}

}  // namespace

TextFiles text_files(const std::string& path, const std::string& pattern) {
  try {
    auto files = find(path, pattern);
    std::sort(files.paths.begin(), files.paths.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    return files;
  } catch (const fs::filesystem_error& error) {
    refuse(path, "cannot be read: " + error.code().message());
  }
}

}  // namespace hkt::data
