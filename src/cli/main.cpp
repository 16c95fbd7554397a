// SPDX-License-Identifier: Apache-2.0
// The program hkt.
#include "cli/program.h"

int main(int count, char** arguments) {
  hkt::cli::prepare_process();
  return hkt::cli::run_program(count, arguments);
}
