// The program hkt.
#include "files/mapped_file.h"
#include "print.h"
#include "program.h"

int main(int count, char** arguments) {
  hkt::cli::open_standard_streams();
  hkt::explain_truncated_files();
  return hkt::cli::run_program(count, arguments);
}
