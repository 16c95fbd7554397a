// SPDX-License-Identifier: Apache-2.0
// Another hkt as a process of its own, which ends with this one.
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
  // Its output goes to `log`, after what is there.
  Child(const std::vector<std::string>& arguments, const std::filesystem::path& log);
  ~Child();  // asks it to stop, and waits; one that is held (SIGSTOP) is let go for that
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  static constexpr int interrupted = 130;  // the exit code of one that was asked to stop, and did
  struct End {
    int code = 0;    // of a process that ended by itself
    int signal = 0;  // which ended it, or 0
  };
  std::optional<End> ended();  // once it has

  // Why it ended as it did, in half a sentence: by which signal, or with which exit code and what it said last.
  std::string account() const;

 private:
  std::filesystem::path log_;
  std::uintmax_t log_begin_ = 0;  // what is before that in the log is of earlier processes
  pid_t process_;
  std::optional<End> end_;
};

}  // namespace hkt::experiments
