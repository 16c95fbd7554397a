// SPDX-License-Identifier: Apache-2.0
// The program as a function, for main and for tests that run whole commands in their own process.
#pragma once

namespace hkt::cli {

// What a process of its own needs first: standard streams that are open, and a sentence in place of a crash where a mapped
// file becomes shorter.
void prepare_process();

// Runs what the arguments ask for and gives back the exit code; errors are printed. The first argument is the program.
int run_program(int count, const char* const* arguments);

}  // namespace hkt::cli
