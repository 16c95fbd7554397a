// SPDX-License-Identifier: Apache-2.0
// Making, locking and tidying run directories.
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
    throw std::invalid_argument(folder.string() +
                                " holds a run already; name another folder, or go on with it by `hkt train --resume " +
                                folder.string() + "`.");
  }
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() == lock_name) continue;
    throw std::invalid_argument(folder.string() +
                                " is not empty; name a folder that is, or one that is not there yet.");
  }
  if (error)
    throw std::invalid_argument(folder.string() + " is not a folder that can be used: " + error.message() + ".");
}

void create_run(const RunDirectory& run, const std::string& config) {
  check_free(run.folder);
  write_file(run.config(), config);
}

void remove_run(const RunDirectory& run) {
  std::error_code error;
  for (const auto& path : {run.config(), run.metrics(), run.folder / lock_name}) fs::remove(path, error);
  fs::remove(run.folder, error);  // only if that leaves it empty
}

RunDirectory open_run(const fs::path& folder) {
  const RunDirectory run{folder};
  if (!run.holds_run()) {
    throw std::invalid_argument(folder.string() + " holds no run: there is no config.json in it.");
  }
  return run;
}

RunLock::RunLock(const RunDirectory& run) {
  std::error_code error;
  fs::create_directories(run.folder, error);
  if (error) throw std::invalid_argument(run.folder.string() + " cannot be made: " + error.message() + ".");
  file_ = open_regular(run.folder / lock_name, O_RDWR | O_CREAT);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw std::invalid_argument("another process is training in " + run.folder.string() + ".");
  }
  remove_partial_files(run.folder);
}

RunLock::~RunLock() { ::close(file_); }

}  // namespace hkt::train
