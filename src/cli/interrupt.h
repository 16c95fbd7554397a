// Ctrl-C: the first asks the work to stop where it can be resumed, the second ends the program at once.
#pragma once

namespace hkt::cli {

class Interrupt {
 public:
  Interrupt();  // listens to SIGINT and SIGTERM
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
};

constexpr int interrupted = 130;  // the exit code that shells know

}  // namespace hkt::cli
