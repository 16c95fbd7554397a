// SPDX-License-Identifier: Apache-2.0
// Creating, locking and cleaning up run directories.
#include "train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "files/regular_file.h"
#include "files/whole_file.h"

namespace hkt::train {
namespace fs = std::filesystem;

namespace {

constexpr const char* lock_name = ".lock";

}  // namespace

void check_free(const fs::path& folder) {
  if (RunDirectory{folder}.holds_run()) {
    throw std::invalid_argument(
        folder.string() + " already contains a run; choose another folder, or resume it with `hkt train --resume " +
        folder.string() + "`.");
  }
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() == lock_name) continue;
    throw std::invalid_argument(folder.string() + " is not empty; choose an empty or a new folder.");
  }
  if (error) throw std::invalid_argument(folder.string() + " cannot be used as a folder: " + error.message() + ".");
}

void create_run(const RunDirectory& run, const std::string& config) {
  check_free(run.folder);
  write_file(run.config(), config);
}

void remove_run(const RunDirectory& run) {
  std::error_code error;
  for (const auto& path : {run.config(), run.metrics(), run.folder / lock_name}) fs::remove(path, error);
  fs::remove(run.folder, error);  // only if it is empty now
}

RunDirectory open_run(const fs::path& folder) {
  const RunDirectory run{folder};
  if (!run.holds_run()) {
    throw std::invalid_argument(folder.string() + " contains no run: it has no config.json.");
  }
  return run;
}

RunLock::RunLock(const RunDirectory& run) {
  std::error_code error;
  fs::create_directories(run.folder, error);
  if (error) throw std::invalid_argument(run.folder.string() + " cannot be created: " + error.message() + ".");
  file_ = open_regular(run.folder / lock_name, O_RDWR | O_CREAT);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw std::invalid_argument("another process is training in " + run.folder.string() + ".");
  }
  remove_partial_files(run.folder);
}

RunLock::~RunLock() { ::close(file_); }

}  // namespace hkt::train
