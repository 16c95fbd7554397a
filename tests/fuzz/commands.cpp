// SPDX-License-Identifier: Apache-2.0
// Whole commands on files from outside: each ends with an exit code that means something.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "cli/program.h"
#include "files/regular_file.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "scratch.h"
#include "targets.h"
#include "train/checkpoint.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

// The folder in which commands find and leave everything.
const Folder& folder() {
  static const Folder folder;
  static const bool ready = [] {
    ::setenv("HKT_DATA", (folder.path() / "data").c_str(), 1);
    at::set_num_threads(1);
    return true;
  }();
  (void)ready;
  return folder;
}

// The config of the models and states of the corpus, which make_corpus.py trains with it.
const std::string& tiny_config() {
  static const std::string text = hkt::read_file(HKT_FUZZ_FOLDER "/tiny.json");
  return text;
}

void run(const std::vector<std::string>& arguments, const std::string& standard_input = {}) {
  static const MemoryFile input;
  input.hold(standard_input);
  ::dup2(input.descriptor(), STDIN_FILENO);
  std::vector<const char*> pointers = {"hkt"};
  for (const auto& argument : arguments) pointers.push_back(argument.c_str());
  const int code = hkt::cli::run_program(static_cast<int>(pointers.size()), pointers.data());
  if (code < 0 || code > 2) fail(arguments.front() + " ended with exit code " + std::to_string(code));
}

std::string run_folder() { return (folder().path() / "run").string(); }
std::string page() { return (folder().path() / "page.html").string(); }

void start_anew() {
  fs::remove_all(run_folder());
  fs::create_directories(run_folder());
}

void predict_with_model(const std::string& input) {
  start_anew();
  folder().holding("run/model.safetensors", input);
  run({"predict", run_folder()}, "[MAX 1 2 ]\n\nx\n");
}

void predict_lines(const std::string& input) {
  static const std::string model = [] {
    const auto path = folder().path() / "model";
    fs::create_directories(path);
    const auto config = hkt::Config::from_json(tiny_config());
    hkt::Classifier classifier(config.model);
    std::vector<std::string> labels;
    for (int i = 0; i < 10; ++i) labels.push_back(std::to_string(i));
    hkt::train::save_model({path}, {config, labels, ""}, hkt::train::copy_of_parameters(*classifier));
    return path.string();
  }();
  run({"predict", model}, input);
}

void explain_with_model(const std::string& input) {
  start_anew();
  folder().holding("run/model.safetensors", input);
  run({"explain", run_folder(), "--text", "[MAX 1 2 ]", "--out", page()});
}

void resume_state(const std::string& input) {
  start_anew();
  folder().holding("run/config.json", tiny_config());
  folder().holding("run/state.safetensors", input);
  run({"train", "--resume", run_folder(), "--quiet"});
}

// The files of a run in one text: each begins after a line "#file NAME".
void report_run(const std::string& input) {
  constexpr std::array names = {"config.json", "metrics.jsonl", "theory.json", "predictions.safetensors",
                                "model.safetensors"};
  start_anew();
  for (const std::string name : names) {
    const std::string mark = "#file " + name + "\n";
    const auto found = input.find(mark);
    if (found == std::string::npos) continue;
    const auto begin = found + mark.size(), end = std::min(input.find("\n#file ", begin), input.size());
    folder().holding("run/" + name, input.substr(begin, end - begin));
  }
  run({"report", run_folder(), "--out", page()});
}

void report_results(const std::string& input) {
  run({"report", folder().holding("results.json", input), "--out", page()});
}

}  // namespace

std::vector<Target> command_targets() {
  return {{"predict_with_model", predict_with_model, true},
          {"predict_lines", predict_lines, false},
          {"explain_with_model", explain_with_model, true},
          {"resume_state", resume_state, true},
          {"report_run", report_run, false},
          {"report_results", report_results, false}};
}

}  // namespace fuzz
