// The program as a function, for main and for tests that run whole commands in their own process.
#pragma once

namespace hkt::cli {

// Runs what the arguments ask for and gives back the exit code; errors are printed. The first argument is the program.
int run_program(int count, const char* const* arguments);

}  // namespace hkt::cli
