// SPDX-License-Identifier: Apache-2.0
// hkt predict: lines of text in, labels and their probabilities out.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "commands.h"
#include "data/text_rows.h"
#include "files/json_fields.h"
#include "files/line_reader.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "hkt/predictor.h"
#include "interrupt.h"
#include "options.h"
#include "print.h"
#include "progress.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string folder, input, column, output;
  std::optional<std::size_t> top;
  std::int64_t phases = 1;
  bool json = false;
  MachineOptions machine;
};

constexpr std::size_t longest_line = std::size_t{1} << 20;

// Texts that are answered together, which gives a choice of similar lengths: `errors` has why one could not be read, or
// nothing.
struct Window {
  std::vector<std::string> texts, errors;
};

constexpr std::size_t most_texts = 4096, most_bytes = std::size_t{1} << 24;  // of a window

class Source {
 public:
  virtual ~Source() = default;
  virtual Window next() = 0;                     // empty after the last text, or when the user interrupts
  virtual std::int64_t bytes() const = 0;        // read so far
  std::int64_t total() const { return total_; }  // 0: unknown

 protected:
  std::int64_t total_ = 0;
};

// The lines of a file or of standard input: as many as come within a moment, so that whoever writes slowly need not wait for
// answers.
class Lines : public Source {
 public:
  Lines(const std::string& path, const Config& config) : config_(config) {
    if (path.empty()) {
      reader_ = std::make_unique<LineReader>(STDIN_FILENO, longest_line);
      at_once_ = ::isatty(STDIN_FILENO) != 0 ? 1 : most_texts;
      struct stat found = {};
      if (::fstat(STDIN_FILENO, &found) == 0 && S_ISREG(found.st_mode)) total_ = found.st_size;
      return;
    }
    try {
      reader_ = std::make_unique<LineReader>(fs::path(path), longest_line);
    } catch (const std::runtime_error& error) {
      throw std::invalid_argument(error.what());
    }
    total_ = static_cast<std::int64_t>(fs::file_size(path));
  }

  Window next() override {
    Window window;
    std::size_t bytes = 0;
    while (!reader_->wait(moment)) {
      if (Interrupt::asked()) return window;
    }
    const auto end = Clock::now() + moment;
    do {
      const auto line = reader_->next();
      if (!line) break;
      add(*line, window);
      bytes += line->text.size();
    } while (window.texts.size() < at_once_ && bytes < most_bytes && reader_->wait(left_until(end)));
    return window;
  }

  std::int64_t bytes() const override { return reader_->bytes(); }

 private:
  static constexpr auto moment = std::chrono::milliseconds(250);

  static std::chrono::milliseconds left_until(Clock::time_point end) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  }

  void add(const LineReader::Line& line, Window& window) const {
    const bool whole = config_.data.task == Task::listops;  // an expression cannot be cut
    const bool refused = line.cut && (whole || static_cast<std::size_t>(config_.model.max_length) > longest_line);
    window.texts.emplace_back(refused ? std::string_view() : line.text);
    window.errors.push_back(refused ? fmt::format("the line has more than {} bytes.", longest_line) : "");
  }

  Config config_;
  std::unique_ptr<LineReader> reader_;
  std::size_t at_once_ = most_texts;
};

// The texts of a column, or of a key of lines of JSON.
class Rows : public Source {
 public:
  Rows(const std::string& path, const std::string& column) : rows_(data::open_texts(path, column)) {
    total_ = static_cast<std::int64_t>(fs::file_size(path));
  }

  Window next() override {
    Window window;
    std::size_t bytes = 0;
    while (window.texts.size() < most_texts && bytes < most_bytes) {
      auto row = rows_->next();
      if (!row) break;
      bytes += row->text.size();
      window.texts.push_back(std::move(row->text));
      window.errors.push_back(row->error.empty() ? "" : "the row " + row->error);
    }
    return window;
  }

  std::int64_t bytes() const override { return rows_->bytes(); }

 private:
  std::unique_ptr<data::TextRows> rows_;
};

std::unique_ptr<Source> source_of(const Options& options, const Config& config) {
  if (options.column.empty()) return std::make_unique<Lines>(options.input, config);
  return std::make_unique<Rows>(options.input, options.column);
}

// Standard output, or a file that appears under its name when it is complete.
class Output {
 public:
  Output(const std::string& path, const std::string& input) {
    if (path.empty()) return;
    std::error_code error;
    if (!input.empty() && fs::equivalent(path, input, error)) {
      throw std::invalid_argument("--input and --output are the same file, " + path + ".");
    }
    try {
      file_.emplace(path);
    } catch (const std::runtime_error& unusable) {
      throw std::invalid_argument(unusable.what());
    }
  }

  void write(const std::string& text) {
    if (file_) return file_->write(text.data(), text.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void finish() {
    if (file_) file_->commit();
  }

 private:
  std::optional<WholeFile> file_;
};

// The classes by probability, the most probable first: all, or the first `most`.
std::vector<std::size_t> ranked(const std::vector<double>& probabilities, std::size_t most) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(most, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](auto a, auto b) {
    return probabilities[a] > probabilities[b] || (probabilities[a] == probabilities[b] && a < b);
  });
  order.erase(end, order.end());
  return order;
}

// One line of output for a line of input. Labels are never empty, so no program mistakes an error for a prediction.
std::string text_of(const Prediction& answer, const std::vector<std::string>& labels, std::size_t top) {
  if (!answer.error.empty()) return fmt::format("\t\t{}\n", printable(answer.error));
  std::string text;
  for (const auto i : ranked(answer.probabilities, top)) {
    text += fmt::format("{}{}\t{:.4f}", text.empty() ? "" : "\t", printable(labels[i]), answer.probabilities[i]);
  }
  return text + "\n";
}

std::string json_of(const Prediction& answer, const std::vector<std::string>& labels, std::size_t top) {
  if (!answer.error.empty()) {
    return fields::dump({{"label", nullptr}, {"probability", nullptr}, {"error", answer.error}}) + "\n";
  }
  auto probabilities = fields::OrderedJson::object();
  for (const auto i : ranked(answer.probabilities, top)) probabilities[labels[i]] = answer.probabilities[i];
  return fields::dump(
             {{"label", answer.label}, {"probability", answer.probability}, {"probabilities", probabilities}}) +
         "\n";
}

struct Counts {
  std::int64_t lines = 0, cut = 0, wrong = 0;  // lines: or rows
};

std::string answers_to(const Window& window, const Predictor& predictor, const Options& options, Counts& counts) {
  auto answers = predictor.predict(window.texts, options.phases);
  std::string text;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    auto& answer = answers[i];
    ++counts.lines;
    if (!window.errors[i].empty()) answer.error = window.errors[i];
    if (!answer.error.empty())
      answer.error = fmt::format("{} {}: {}", options.column.empty() ? "line" : "row", counts.lines, answer.error);
    counts.wrong += answer.error.empty() ? 0 : 1;
    counts.cut += answer.cut ? 1 : 0;
    text += options.json ? json_of(answer, predictor.labels(), options.top.value_or(predictor.labels().size()))
                         : text_of(answer, predictor.labels(), options.top.value_or(1));
  }
  return text;
}

// No bar where it would run through the answers on a terminal.
bool shows_progress(const Options& options) {
  return !options.output.empty() || (::isatty(STDERR_FILENO) != 0 && ::isatty(STDOUT_FILENO) == 0);
}

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const Predictor predictor(options.folder, device, warn);
  if (options.phases > 1) predictor.predict({}, options.phases);  // throws where a text cannot begin elsewhere
  const auto source = source_of(options, predictor.config());
  Output output(options.output, options.input);
  std::optional<Interrupt> interrupt;  // so that no unfinished file stays; without a file the system ends the program
  if (!options.output.empty()) interrupt.emplace();
  std::optional<Progress> progress;
  if (shows_progress(options)) progress.emplace("predict");
  Counts counts;
  for (auto window = source->next(); !window.texts.empty() && !Interrupt::asked(); window = source->next()) {
    output.write(answers_to(window, predictor, options, counts));
    if (progress) progress->show(source->bytes(), source->total(), fmt::format("{} lines", counts.lines));
  }
  progress.reset();
  if (Interrupt::asked()) return interrupted;
  output.finish();
  if (counts.cut > 0) {
    warn(fmt::format("{} of {} lines were longer than model.max_length, {}, and were cut there.", counts.cut,
                     counts.lines, predictor.config().model.max_length));
  }
  if (counts.wrong > 0) {
    warn(fmt::format("{} of {} lines could not be labelled; their lines of output say why.", counts.wrong,
                     counts.lines));
  }
  return counts.wrong > 0 ? 1 : 0;
}

}  // namespace

void add_predict(CLI::App& program, Action& action) {
  constexpr std::size_t most_classes = 10'000;
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("predict", "Label lines of text");
  command.add_option("folder", options->folder, "a run directory")->required();
  auto* input = command.add_option("--input", options->input, "a file of lines (default: standard input)");
  command
      .add_option(
          "--text", options->column,
          "the texts are in this column of the input, a .csv or .tsv, by name or number, or under this key of a .jsonl")
      ->needs(input);
  command.add_option("--output", options->output, "the file to write, when it is complete (default: standard output)");
  command.add_option("--top", options->top, "print this many labels, the most probable first (default: 1; JSON: all)")
      ->check(CLI::Range(std::size_t{1}, most_classes));
  command
      .add_option("--phases", options->phases,
                  "average over so many beginnings of each text, without its first 0, 1, 2, … tokens (default: 1)")
      ->check(CLI::Range(1, 64));
  command.add_flag("--json", options->json, "print an object per line, with the probability of every label");
  add_machine_options(command, options->machine);
  command.footer(
      "Prints label, tab, probability for each line, in their order. For an invalid line it prints two tabs and the\n"
      "reason, and the exit code is 1. Lines that come within a moment are sorted by length and computed together.\n\n"
      "Examples:\n  echo '[MAX 4 [MIN 7 2 ] 3 ]' | hkt predict runs/hkt\n"
      "  hkt predict runs/mine --input texts.txt --output answers.jsonl --json\n"
      "  hkt predict runs/mine --input reviews.csv --text review");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
