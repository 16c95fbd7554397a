// Making, locking and tidying run directories.
#include "run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "files/whole_file.h"

namespace hkt::train {
namespace fs = std::filesystem;

RunDirectory create_run(const fs::path& folder, const std::string& config) {
  const RunDirectory run{folder};
  if (run.holds_run()) {
    throw std::invalid_argument(folder.string() + " holds a run already; go on with it by `hkt train --resume " +
                                folder.string() + "`, or name another folder.");
  }
  std::error_code error;
  if (fs::exists(folder) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))) {
    throw std::invalid_argument(folder.string() + " is not an empty folder; name one that is empty or not there yet.");
  }
  fs::create_directories(folder, error);
  if (error) throw std::invalid_argument(folder.string() + " cannot be made: " + error.message() + ".");
  write_file(run.config(), config);
  return run;
}

RunDirectory open_run(const fs::path& folder) {
  const RunDirectory run{folder};
  if (!run.holds_run()) {
    throw std::invalid_argument(folder.string() + " holds no run: there is no config.json in it.");
  }
  return run;
}

RunLock::RunLock(const RunDirectory& run) : file_(::open(run.config().c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw std::invalid_argument("another process is training in " + run.folder.string() + ".");
  }
  // What a killed process left half-written.
  for (const auto& entry : fs::directory_iterator(run.folder)) {
    if (entry.path().filename().string().find(".partial-") != std::string::npos) fs::remove(entry.path());
  }
}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace hkt::train
