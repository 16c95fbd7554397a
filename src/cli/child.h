// Another hkt as a process of its own, which ends with this one.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hkt::cli {

class Child {
 public:
  // Its output goes to `log`, after what is there.
  Child(const std::vector<std::string>& arguments, const std::filesystem::path& log);
  ~Child();  // asks it to stop, and waits
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Its exit code once it has ended, 128 and more for a signal.
  std::optional<int> ended();

 private:
  pid_t process_;
  std::optional<int> code_;
};

}  // namespace hkt::cli
