// SPDX-License-Identifier: Apache-2.0
// Termination signals. The first one asks the work to stop where it can be resumed. A second Ctrl-C ends the program at
// once; other signals are ignored after the first, because stopping a process group may deliver several.
#pragma once

namespace hkt::cli {

class Interrupt {
 public:
  // Handles SIGINT, SIGTERM, SIGHUP and SIGXFSZ, and ignores SIGPIPE: a closed output pipe must not lose the work.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
};

constexpr int interrupted = 130;  // exit code, by shell convention 128 + SIGINT

}  // namespace hkt::cli
