// SPDX-License-Identifier: Apache-2.0
// Signals that ask for an end: the first of them asks the work to stop where it can be resumed. A second Ctrl-C ends the
// program at once; a second signal of another kind says nothing new, for whoever stops a group of processes sends several.
#pragma once

namespace hkt::cli {

class Interrupt {
 public:
  // Listens to SIGINT, SIGTERM, SIGHUP and SIGXFSZ, and ignores SIGPIPE: a reader of the output that is gone is no reason
  // to lose the work.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
};

constexpr int interrupted = 130;  // the exit code that shells know

}  // namespace hkt::cli
