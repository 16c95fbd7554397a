// SPDX-License-Identifier: Apache-2.0
// Parses the command line, runs the command, and turns every error into one sentence and an exit code.
#include "cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "files/json_fields.h"
#include "files/mapped_file.h"
#include "print.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

constexpr int failed = 1, wrong_use = 2;

int complain(const std::string& sentence, int code) {
  warn(sentence);
  return code;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error) {
  const auto unknown = program.remaining();
  if (!program.get_subcommands().empty() || unknown.empty()) {
    return std::string(error.what()) + " (see hkt --help)";
  }
  std::vector<std::string> names;
  for (const auto* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return fmt::format("unknown command \"{}\"; did you mean \"{}\"?", unknown.front(),
                     fields::nearest(unknown.front(), names));
}

}  // namespace

void prepare_process() {
  open_standard_streams();
  explain_truncated_files();
}

int run_program(int count, const char* const* arguments) {
  CLI::App program("The Hierarchical Kernel Transformer: attention at several resolutions.", "hkt");
  program.require_subcommand(1);
  program.set_version_flag("--version", "hkt " + train::version() + " (commit " + train::commit() + ")",
                           "Print the version and exit");
  Action action;
  for (const auto add : {add_train, add_eval, add_predict, add_generate, add_theory, add_report, add_explain,
                         add_export, add_tune, add_reproduce, add_data, add_config, add_completion, add_info}) {
    add(program, action);
  }
  try {
    program.parse(count, arguments);
    const int code = action();
    const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!printed && code == 0) return complain("standard output could not be written.", failed);
    return code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    return complain(what_is_wrong(program, error), wrong_use);
  } catch (const std::invalid_argument& error) {
    return complain(error.what(), wrong_use);
  } catch (const c10::Error& error) {
    return complain(first_line(error.what_without_backtrace()), failed);
  } catch (const nlohmann::json::exception&) {
    return complain("a JSON file does not have the structure that hkt writes.", failed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory.", failed);
  } catch (const std::exception& error) {
    return complain(first_line(error.what()), failed);
  }
}

}  // namespace hkt::cli
