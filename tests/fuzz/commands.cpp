// SPDX-License-Identifier: Apache-2.0
// Whole commands on files from outside: each ends with an exit code that means something.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "cli/program.h"
#include "files/quote.h"
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

// A standard stream that is a file in memory for a while.
class Redirected {
 public:
  Redirected(int stream, const MemoryFile& file) : stream_(stream), before_(::dup(stream)) {
    ::dup2(file.descriptor(), stream);
  }
  ~Redirected() {
    ::dup2(before_, stream_);
    ::close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int stream_, before_;
};

struct Outcome {
  int code;
  std::string printed, warned;  // standard output and standard error
};

Outcome outcome_of(const std::vector<std::string>& arguments, const std::string& standard_input) {
  static const MemoryFile input, output, errors;
  input.hold(standard_input);
  output.hold("");
  errors.hold("");
  std::vector<const char*> pointers = {"hkt"};
  for (const auto& argument : arguments) pointers.push_back(argument.c_str());
  std::fflush(stdout);
  int code = 0;
  {
    const Redirected in(STDIN_FILENO, input), out(STDOUT_FILENO, output), error(STDERR_FILENO, errors);
    code = hkt::cli::run_program(static_cast<int>(pointers.size()), pointers.data());
    std::fflush(stdout);
  }
  return {code, output.text(), errors.text()};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_for_people(std::string line) {
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line == hkt::printable(line) && line.find("json.exception") == std::string::npos;
}

// The lines that it prints. Whatever files hold, its exit code means something, and no line is forged or for a terminal.
std::vector<std::string> run(const std::vector<std::string>& arguments, const std::string& standard_input = {}) {
  const auto [code, printed, warned] = outcome_of(arguments, standard_input);
  if (code < 0 || code > 2) fail(arguments.front() + " ended with exit code " + std::to_string(code));
  for (const auto& line : lines_of(printed))
    if (!is_for_people(line)) fail(arguments.front() + " printed " + hkt::printable(line));
  for (const auto& line : lines_of(warned))
    if (!is_for_people(line) || !line.starts_with("hkt: ")) fail(arguments.front() + " warned " + hkt::printable(line));
  require(code == 0 || !warned.empty(), "a command failed and did not say why");
  return lines_of(printed);
}

std::string run_folder() { return (folder().path() / "run").string(); }
std::string page() { return (folder().path() / "page.html").string(); }

// A command that makes a page: its data is JSON, and no word of it ends the script.
void run_for_page(std::vector<std::string> arguments) {
  const std::string begin = R"(<script type="application/json" id="data">)", end = "</script>";
  fs::remove(page());
  arguments.insert(arguments.end(), {"--out", page()});
  run(arguments);
  if (!fs::exists(page())) return;
  const auto text = hkt::read_file(page());
  const auto first = text.find(begin);
  require(first != std::string::npos, "a page has no data");
  const auto data = text.substr(first + begin.size(), text.find(end, first) - first - begin.size());
  require(data.find('<') == std::string::npos && nlohmann::json::accept(data), "a page has data that is no JSON");
}

void start_anew() {
  fs::remove_all(run_folder());
  fs::create_directories(run_folder());
}

void predict_with_model(const std::string& input) {
  start_anew();
  folder().holding("run/model.safetensors", input);
  const auto answers = run({"predict", run_folder()}, "[MAX 1 2 ]\n\nx\n");
  require(answers.empty() || answers.size() == 3, "lines and answers differ in number");
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
  const auto answers = run({"predict", model}, input);
  require(answers.size() == lines_of(input).size(), "lines and answers differ in number");
}

void explain_with_model(const std::string& input) {
  start_anew();
  folder().holding("run/model.safetensors", input);
  run_for_page({"explain", run_folder(), "--text", "[MAX 1 2 ]"});
}

void resume_state(const std::string& input) {
  start_anew();
  folder().holding("run/config.json", tiny_config());
  folder().holding("run/state.safetensors", input);
  run({"train", "--resume", run_folder(), "--quiet"});
}

// The files of a run in one text: each begins after a line "#file NAME".
using Files = std::vector<std::pair<std::string, std::string>>;

Files files_in(const std::string& input) {
  constexpr std::array names = {"config.json", "metrics.jsonl",     "theory.json",
                                "score.json",  "model.safetensors", "predictions.safetensors"};
  Files files;
  for (const std::string name : names) {
    const std::string mark = "#file " + name + "\n";
    const auto found = input.find(mark);
    if (found == std::string::npos) continue;
    const auto begin = found + mark.size(), end = std::min(input.find("\n#file ", begin), input.size());
    files.emplace_back(name, input.substr(begin, end - begin));
  }
  return files;
}

std::string repaired_run(const std::string& input) {
  std::string text;
  for (const auto& [name, bytes] : files_in(input)) {
    const bool safetensors = name.ends_with(".safetensors");
    text += (text.empty() ? "#file " : "\n#file ") + name + "\n" + (safetensors ? repaired_safetensors(bytes) : bytes);
  }
  return text;
}

void report_run(const std::string& input) {
  start_anew();
  for (const auto& [name, bytes] : files_in(input)) folder().holding("run/" + name, bytes);
  run_for_page({"report", run_folder()});
}

void report_results(const std::string& input) { run_for_page({"report", folder().holding("results.json", input)}); }

}  // namespace

std::vector<Target> command_targets() {
  return {{"predict_with_model", predict_with_model, repaired_safetensors},
          {"predict_lines", predict_lines},
          {"explain_with_model", explain_with_model, repaired_safetensors},
          {"resume_state", resume_state, repaired_safetensors},
          {"report_run", report_run, repaired_run},
          {"report_results", report_results}};
}

}  // namespace fuzz
