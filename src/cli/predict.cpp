// hkt predict: lines of text in, a label and its probability out.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "data/dataset.h"
#include "options.h"
#include "train/checkpoint.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder;
  bool json = false;
  MachineOptions machine;
};

constexpr std::size_t lines_at_once = 64;

class Predictor {
 public:
  Predictor(train::TrainedModel trained, at::Device device, bool json)
      : trained_(std::move(trained)), device_(device), json_(json) {}

  void predict(const std::vector<std::vector<std::uint8_t>>& lines) const {
    if (lines.empty()) return;
    const at::NoGradGuard no_grad;
    const auto count = static_cast<std::int64_t>(lines.size());
    std::size_t longest = 1;
    for (const auto& line : lines) longest = std::max(longest, line.size());
    const auto tokens = at::zeros({count, static_cast<std::int64_t>(longest)}, at::kLong);
    const auto lengths = at::empty({count}, at::kLong);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& line = lines[static_cast<std::size_t>(i)];
      std::copy(line.begin(), line.end(), tokens[i].mutable_data_ptr<std::int64_t>());
      lengths[i] = static_cast<std::int64_t>(line.size());
    }
    auto model = trained_.model;
    const auto logits = model->forward(tokens.to(device_), lengths.to(device_)).to(at::kCPU, at::kDouble);
    const auto [probability, label] = at::softmax(logits, 1).max(1);
    for (std::int64_t i = 0; i < count; ++i) {
      print(trained_.identity.labels[static_cast<std::size_t>(label[i].item<std::int64_t>())],
            probability[i].item<double>());
    }
    std::fflush(stdout);
  }

 private:
  void print(const std::string& label, double probability) const {
    if (json_) {
      fmt::print("{}\n", nlohmann::ordered_json{{"label", label}, {"probability", probability}}.dump());
    } else {
      fmt::print("{}\t{:.4f}\n", label, probability);
    }
  }

  train::TrainedModel trained_;
  at::Device device_;
  bool json_;
};

int run(const Options& options) {
  const auto device = chosen_device(options.machine);
  if (options.machine.threads) at::set_num_threads(*options.machine.threads);
  const auto trained = train::load_model({options.folder}, device, warn);
  const auto& config = trained.identity.config;
  const auto longest = static_cast<std::size_t>(config.model.max_length);
  const std::size_t at_once = ::isatty(STDIN_FILENO) != 0 ? 1 : lines_at_once;
  const Predictor predictor(trained, device, options.json);
  std::vector<std::vector<std::uint8_t>> lines;
  std::int64_t number = 0, cut = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    try {
      lines.push_back(data::encode(config.data.task, line));
    } catch (const std::invalid_argument& error) {
      predictor.predict(lines);
      throw std::invalid_argument(fmt::format("line {}: {}", number, error.what()));
    }
    if (lines.back().size() > longest) {
      if (config.data.task == Task::listops) {  // an expression without its end means nothing
        throw std::invalid_argument(fmt::format("line {}: the expression has {} tokens; this model takes {} at most.",
                                                number, lines.back().size(), longest));
      }
      lines.back().resize(longest);
      ++cut;
    }
    if (lines.size() < at_once) continue;
    predictor.predict(lines);
    lines.clear();
  }
  predictor.predict(lines);
  if (cut > 0)
    warn(
        fmt::format("{} of {} lines were longer than model.max_length, {}, and were cut there.", cut, number, longest));
  return 0;
}

}  // namespace

void add_predict(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("predict", "Label lines of text from standard input");
  command.add_option("folder", options->folder, "a run directory")->required();
  command.add_flag("--json", options->json, "print an object per line");
  add_machine_options(command, options->machine);
  command.footer(
      "Prints label, tab, probability for each line.\n\nExample:\n  echo '[MAX 4 [MIN 7 2 ] 3 ]' | hkt predict "
      "runs/hkt");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
