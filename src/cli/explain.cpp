// SPDX-License-Identifier: Apache-2.0
// hkt explain: an HTML page of what one model, or two beside each other, did with one input.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "explanation.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "report/packed.h"
#include "report/report.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> folders;
  std::string text, split = "test", out = "explanation.html";
  std::optional<std::int64_t> index;
  std::optional<std::int64_t> longest;  // at most so many tokens are explained
  std::optional<int> threads;
};

struct Input {
  std::vector<std::uint8_t> tokens;
  std::optional<std::string> label;  // the true label, of an example from the data set
};

Input input_of(const LoadedRun& run, const std::string& split_name, std::int64_t index) {
  if (run.is_language()) throw std::invalid_argument("--index is for classifiers; a language model explains a --text.");
  const auto& split = split_of(run.dataset, split_name);
  if (index < 0 || index >= split.size()) {
    throw std::invalid_argument(
        fmt::format("--index is {}; in the {} split it must be 0 to {}.", index, split_name, split.size() - 1));
  }
  const auto tokens = split.tokens(index);
  return {{tokens.begin(), tokens.end()}, run.dataset.labels[static_cast<std::size_t>(split.label(index))]};
}

// What tokens are: those of expressions, pixels, or bytes.
const char* alphabet(Task task) {
  return task == Task::listops ? "expressions" : task == Task::scifar ? "images" : "texts";
}

// The data of the first model is needed for --index alone, and also that of a second one is the first one's then.
std::vector<LoadedRun> load_all(const Options& options) {
  std::vector<LoadedRun> runs;
  for (const auto& folder : options.folders) {
    runs.push_back(options.index && runs.empty()
                       ? load_run(folder, at::kCPU)
                       : LoadedRun{{folder}, train::load_model({folder}, at::kCPU, warn), {}, {}});
    const auto &first = runs.front(), &last = runs.back();
    require_hkt(last, "hkt explain");
    const auto *takes = alphabet(first.config().data.task), *other = alphabet(last.config().data.task);
    if (std::string_view(takes) != other) {
      throw std::invalid_argument(fmt::format("{} takes {}, {} takes {}; models side by side need the same input.",
                                              options.folders.front(), takes, folder, other));
    }
    if (last.is_language() != first.is_language()) {
      throw std::invalid_argument(
          fmt::format("one of {} and {} is a language model; models side by side give the same answers.",
                      options.folders.front(), folder));
    }
    if (options.index && last.trained.identity.labels != first.trained.identity.labels) {
      throw std::invalid_argument(
          fmt::format("{} and {} have different labels; --index shows them an example of one data set.",
                      options.folders.front(), folder));
    }
  }
  return runs;
}

// Only a whole image can be shown as one. A text may be as long as its numbers make a page of some megabytes.
std::int64_t longest_of(const Options& options, const Config& config) {
  constexpr std::int64_t enough_text = 512, page_bytes = 8 << 20, step = 64;
  const auto fits = std::max(step, page_bytes / page_bytes_per_token(config.model) / step * step);
  const auto wanted = config.data.task == Task::scifar ? config.model.max_length : std::min(enough_text, fits);
  return std::min(config.model.max_length, options.longest.value_or(wanted));
}

void cut(std::vector<std::uint8_t>& tokens, std::int64_t longest, Task task) {
  if (std::ssize(tokens) <= longest) return;
  if (task == Task::listops) {
    throw std::invalid_argument(
        fmt::format("the expression has {} tokens, and at most {} can be explained; an expression cannot be cut.",
                    tokens.size(), longest));
  }
  warn(fmt::format("the input has {} tokens; only the first {} are used for the prediction and its explanation.",
                   tokens.size(), longest));
  tokens.resize(static_cast<std::size_t>(longest));
}

// explain/numbers.js says what is in it.
ordered_json page_of(const std::vector<LoadedRun>& runs, const ExplainedInput& input,
                     const std::optional<std::string>& label) {
  const auto task = runs.front().config().data.task;
  std::string names;
  for (const auto& run : runs) names += (names.empty() ? "" : " and ") + run.directory.folder.string();
  ordered_json page = {{"title", "What " + names + " looked at"},
                       {"input", alphabet(task)},
                       {"label", label ? ordered_json(*label) : ordered_json()},
                       {"tokens", report::packed(input.tokens)},
                       {"texts", ordered_json::array()},
                       {"units", input.units},
                       {"unit_size", input.unit_size},
                       {"models", ordered_json::array()},
                       {"where", train::provenance()}};
  if (task == Task::listops) {
    for (const auto token : input.tokens) page["texts"].push_back(data::token_text(task, token));
  }
  return page;
}

int run(const Options& options) {
  if (options.threads) at::set_num_threads(*options.threads);
  if (options.index.has_value() == !options.text.empty()) {
    throw std::invalid_argument("give the input to explain, as either --text or --index N.");
  }
  const auto runs = load_all(options);
  const auto task = runs.front().config().data.task;
  auto [tokens, label] = options.index ? input_of(runs.front(), options.split, *options.index)
                                       : Input{data::encode(task, options.text), {}};
  std::vector<std::int64_t> longest;
  for (const auto& one : runs) longest.push_back(longest_of(options, one.config()));
  cut(tokens, *std::min_element(longest.begin(), longest.end()), task);
  const auto input = explained_input(task, std::move(tokens));
  auto page = page_of(runs, input, label);
  for (const auto& one : runs) {
    const auto name = one.directory.folder.string();
    auto explanation = explain(one.trained, name, input, label);
    page["models"].push_back(std::move(explanation.page));
    fmt::print("{}\t{:.4f}{}{}\n", printable(explanation.best.text), explanation.best.probability,
               runs.size() > 1 ? "\t" + printable(name) : "",
               label ? "\t(the label is " + printable(*label) + ")" : "");
  }
  write_file(options.out, report::explanation(page));
  fmt::print("{}\n", printable(std::filesystem::absolute(options.out).string()));
  return 0;
}

}  // namespace

void add_explain(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("explain", "Show what a model made of one input as an HTML page");
  command.add_option("folders", options->folders, "a run directory, or two to see them side by side")
      ->required()
      ->expected(1, 2);
  command.add_option("--text", options->text, "the input");
  command.add_option("--index", options->index, "instead of --text: the index of a sequence of --split");
  command.add_option("--split", options->split, "train, validation or test")->capture_default_str();
  command
      .add_option("--length", options->longest,
                  "explain at most this many tokens (default: 512, fewer for large models; images: all)")
      ->check(CLI::Range(1, 4096));
  add_page_option(command, options->out);
  command.add_option("--threads", options->threads, "number of CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command.footer(
      "The page shows the answer and what it would be without each word and without each level; of a language model, "
      "the\n"
      "next bytes it found probable after every byte; and what every head attended to, level by level. It needs no "
      "network.\n\n"
      "Examples:\n  hkt explain runs/hkt --text \"[MAX 2 9 [MIN 4 7 ] 0 ]\"\n"
      "  hkt explain models/imdb-standard models/imdb-hkt --text \"a film that never ends\"");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
