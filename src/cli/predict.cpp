// SPDX-License-Identifier: Apache-2.0
// hkt predict: lines of text in, a label and its probability out.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "data/dataset.h"
#include "files/json_fields.h"
#include "files/line_reader.h"
#include "files/quote.h"
#include "options.h"
#include "print.h"
#include "train/checkpoint.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder;
  bool json = false;
  MachineOptions machine;
};

constexpr std::size_t lines_at_once = 64;
constexpr std::size_t longest_line = std::size_t{1} << 20;

// One line of input: its tokens, or why there are none.
struct Line {
  std::vector<std::uint8_t> tokens;
  std::string error;
};

// Prints exactly one line of output for each line of input, in order.
class Predictor {
 public:
  Predictor(train::TrainedModel trained, at::Device device, bool json)
      : trained_(std::move(trained)), device_(device), json_(json) {}

  void predict(const std::vector<Line>& lines) const {
    const auto answers = answers_to(lines);
    std::int64_t next = 0;
    for (const auto& line : lines) {
      if (!line.error.empty()) {
        print_error(line.error);
        continue;
      }
      const auto [probability, label] = answers[next++].max(0);
      print(trained_.identity.labels[static_cast<std::size_t>(label.item<std::int64_t>())], probability.item<double>());
    }
    std::fflush(stdout);
  }

 private:
  // Probabilities, [lines without an error, classes].
  at::Tensor answers_to(const std::vector<Line>& lines) const {
    const at::NoGradGuard no_grad;
    std::vector<const Line*> good;
    for (const auto& line : lines) {
      if (line.error.empty()) good.push_back(&line);
    }
    if (good.empty()) return {};
    std::size_t longest = 1;
    for (const auto* line : good) longest = std::max(longest, line->tokens.size());
    const auto count = static_cast<std::int64_t>(good.size());
    const auto tokens = at::zeros({count, static_cast<std::int64_t>(longest)}, at::kLong);
    const auto lengths = at::empty({count}, at::kLong);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& line = good[static_cast<std::size_t>(i)]->tokens;
      std::copy(line.begin(), line.end(), tokens[i].mutable_data_ptr<std::int64_t>());
      lengths[i] = static_cast<std::int64_t>(line.size());
    }
    auto model = trained_.model;
    return at::softmax(model->forward(tokens.to(device_), lengths.to(device_)).to(at::kCPU, at::kDouble), 1);
  }

  void print(const std::string& label, double probability) const {
    if (json_) {
      fmt::print("{}\n", fields::dump({{"label", label}, {"probability", probability}}));
    } else {
      fmt::print("{}\t{:.4f}\n", printable(label), probability);
    }
  }

  // Labels are never empty, so no program mistakes this for a prediction.
  void print_error(const std::string& error) const {
    if (json_) {
      fmt::print("{}\n", fields::dump({{"label", nullptr}, {"probability", nullptr}, {"error", error}}));
    } else {
      fmt::print("\t\t{}\n", printable(error));
    }
  }

  train::TrainedModel trained_;
  at::Device device_;
  bool json_;
};

// The tokens of a line, cut at the model's max_length; throws std::invalid_argument for an invalid input.
std::vector<std::uint8_t> tokens_of(const LineReader::Line& line, const Config& config, std::int64_t& cut) {
  const auto longest = static_cast<std::size_t>(config.model.max_length);
  const bool is_expression = config.data.task == Task::listops;  // cannot be cut
  if (line.cut && (is_expression || longest > longest_line)) {
    throw std::invalid_argument(fmt::format("the line has more than {} bytes.", longest_line));
  }
  auto tokens = data::encode(config.data.task, line.text);
  if (tokens.size() <= longest) return tokens;
  if (is_expression) {
    throw std::invalid_argument(
        fmt::format("the expression has {} tokens; this model takes {} at most.", tokens.size(), longest));
  }
  tokens.resize(longest);
  ++cut;
  return tokens;
}

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const auto trained = train::load_model({options.folder}, device, warn);
  const auto& config = trained.identity.config;
  if (config.model.kind == ModelKind::language) {
    throw std::invalid_argument(options.folder + " contains a language model; hkt generate uses it.");
  }
  if (config.data.task == Task::scifar) data::encode(config.data.task, "");  // throws: images only
  const std::size_t at_once = ::isatty(STDIN_FILENO) != 0 ? 1 : lines_at_once;
  const Predictor predictor(trained, device, options.json);
  LineReader input(STDIN_FILENO, longest_line);
  std::vector<Line> lines;
  std::int64_t number = 0, cut = 0, wrong = 0;
  while (const auto line = input.next()) {
    ++number;
    auto& next = lines.emplace_back();
    try {
      next.tokens = tokens_of(*line, config, cut);
    } catch (const std::invalid_argument& error) {
      next.error = fmt::format("line {}: {}", number, error.what());
      ++wrong;
    }
    if (lines.size() < at_once) continue;
    predictor.predict(lines);
    lines.clear();
  }
  predictor.predict(lines);
  if (cut > 0) {
    warn(fmt::format("{} of {} lines were longer than model.max_length, {}, and were cut there.", cut, number,
                     config.model.max_length));
  }
  if (wrong > 0)
    warn(fmt::format("{} of {} lines could not be labelled; their lines of output say why.", wrong, number));
  return wrong > 0 ? 1 : 0;
}

}  // namespace

void add_predict(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("predict", "Label lines of text from standard input");
  command.add_option("folder", options->folder, "a run directory")->required();
  command.add_flag("--json", options->json, "print an object per line");
  add_machine_options(command, options->machine);
  command.footer(
      "Prints label, tab, probability for each line. For an invalid line it prints two tabs and the reason, and the\n"
      "exit code is 1.\n\nExample:\n  echo '[MAX 4 [MIN 7 2 ] 3 ]' | hkt predict runs/hkt");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
