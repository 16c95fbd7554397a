// SPDX-License-Identifier: Apache-2.0
// Another hkt as a child process, which ends when this one does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hkt::experiments {

class Child {
 public:
  // Its output is appended to `log`.
  Child(const std::vector<std::string>& arguments, const std::filesystem::path& log);
  ~Child();  // asks it to stop and waits; a stopped process (SIGSTOP) is continued first
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  static constexpr int interrupted = 130;  // exit code of a process that stopped on request
  struct End {
    int code = 0;    // exit code
    int signal = 0;  // the signal that ended it, or 0
  };
  std::optional<End> ended();  // nullopt while it runs

  // How it ended, as the end of a sentence: the signal or exit code, and the last line of its log.
  std::string describe_end() const;

 private:
  std::filesystem::path log_;
  std::uintmax_t log_begin_ = 0;  // earlier bytes of the log are of earlier processes
  pid_t process_;
  std::optional<End> end_;
};

}  // namespace hkt::experiments
