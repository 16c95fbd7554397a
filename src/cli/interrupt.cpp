// SPDX-License-Identifier: Apache-2.0
// Signal handlers.
#include "interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

namespace hkt::cli {
namespace {

volatile std::sig_atomic_t count = 0;

void note(int signal) {
  if (count > 0 && signal == SIGINT) ::_exit(interrupted);
  if (count > 0) return;
  count = 1;
  constexpr const char* text = "\nhkt: stopping after this step; press Ctrl-C again to stop at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void set(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void listen(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGXFSZ}) set(signal, handler);
  // nohup starts its child with SIGHUP ignored; leave it so.
  struct sigaction before = {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) set(SIGHUP, handler);
}

}  // namespace

Interrupt::Interrupt() {
  count = 0;
  listen(note);
  set(SIGPIPE, SIG_IGN);
}

Interrupt::~Interrupt() {
  listen(SIG_DFL);
  set(SIGPIPE, SIG_DFL);
}

bool Interrupt::asked() { return count > 0; }

}  // namespace hkt::cli
