// Signals.
#include "interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace hkt::cli {
namespace {

volatile std::sig_atomic_t count = 0;

void note(int) {
  count = count + 1;
  if (count > 1) ::_exit(interrupted);
  constexpr const char* text = "\nhkt: stopping after this step; once more to stop at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void listen(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  count = 0;
  listen(note);
}

Interrupt::~Interrupt() { listen(SIG_DFL); }

bool Interrupt::asked() { return count > 0; }

}  // namespace hkt::cli
