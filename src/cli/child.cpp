// Starting and awaiting processes, by the calls of Linux.
#include "child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>

namespace hkt::cli {

Child::Child(const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  // All that needs memory comes before the fork: after it only plain system calls are safe.
  std::vector<std::string> all = {"hkt"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const std::string file = log.string();
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) {
    throw std::runtime_error("no process could be started: " + std::generic_category().message(errno) + ".");
  }
  if (process_ > 0) return;
  constexpr mode_t usual = 0666;
  constexpr int not_started = 127;
  ::setpgid(0, 0);  // Ctrl-C reaches the parent alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, usual);
  if (::getppid() != parent || out < 0) ::_exit(not_started);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execv("/proc/self/exe", pointers.data());
  ::_exit(not_started);
}

Child::~Child() {
  if (ended()) return;
  ::kill(process_, SIGTERM);
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> Child::ended() {
  if (code_) return code_;
  int status = 0;
  if (::waitpid(process_, &status, WNOHANG) != process_) return {};
  constexpr int signal_base = 128;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : signal_base + WTERMSIG(status);
  return code_;
}

}  // namespace hkt::cli
