// SPDX-License-Identifier: Apache-2.0
// Starting processes and waiting for them, with Linux system calls.
#include "experiments/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "files/regular_file.h"

namespace hkt::experiments {

Child::Child(const std::vector<std::string>& arguments, const std::filesystem::path& log) : log_(log) {
  // Everything that allocates comes before the fork: after it only plain system calls are safe.
  std::vector<std::string> all = {"hkt"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int out = open_regular(log, O_WRONLY | O_CREAT | O_APPEND);
  std::error_code error;
  log_begin_ = std::filesystem::file_size(log, error);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ != 0) {
    const int reason = errno;
    ::close(out);
    if (process_ > 0) return;
    throw std::runtime_error("could not start a process: " + std::generic_category().message(reason) + ".");
  }
  constexpr int not_started = 127;
  ::setpgid(0, 0);  // Ctrl-C then reaches only the parent, which stops its children once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(not_started);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execv("/proc/self/exe", pointers.data());
  ::_exit(not_started);
}

Child::~Child() {
  if (ended()) return;
  ::kill(process_, SIGTERM);
  constexpr useconds_t often = 20'000;
  while (!ended()) {
    ::kill(process_, SIGCONT);  // a process stopped by SIGSTOP would never handle SIGTERM
    ::usleep(often);
  }
}

std::optional<Child::End> Child::ended() {
  if (end_) return end_;
  int status = 0;
  const auto found = ::waitpid(process_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return {};
  if (found < 0) {
    end_ = {0, SIGKILL};  // gone; its status is unknown
  } else if (WIFEXITED(status)) {
    end_ = {WEXITSTATUS(status), 0};
  } else {
    end_ = {0, WTERMSIG(status)};
  }
  return end_;
}

std::string Child::describe_end() const {
  std::string last;
  try {
    const auto log = read_file(log_);
    std::istringstream lines(log.substr(std::min<std::size_t>(log.size(), log_begin_)));
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) last = line;
    }
  } catch (const std::runtime_error&) {
    last.clear();  // an unreadable log is no reason to fail
  }
  const auto end = end_.value_or(End{});
  const auto how = end.signal != 0
                       ? "was ended by signal " + std::to_string(end.signal) + " (" + ::strsignal(end.signal) + ")"
                       : "ended with exit code " + std::to_string(end.code);
  return how + (last.empty() ? " and left no message" : ": " + last);
}

}  // namespace hkt::experiments
