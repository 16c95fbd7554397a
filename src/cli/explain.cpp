// SPDX-License-Identifier: Apache-2.0
// hkt explain: an HTML page of a model's attention on one input, at every level.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "loaded_run.h"
#include "options.h"
#include "print.h"
#include "report/quantised.h"
#include "report/report.h"
#include "theory/walk.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string folder, text, split = "test", out = "explanation.html";
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

ordered_json matrix(const at::Tensor& square) {
  const auto values = square.to(at::kDouble).contiguous();
  return report::quantised({values.const_data_ptr<double>(), static_cast<std::size_t>(values.numel())}, values.size(0));
}

// [T, L] as lists; three digits are enough to look at.
ordered_json rows_of(const at::Tensor& shares) {
  auto rows = ordered_json::array();
  for (std::int64_t i = 0; i < shares.size(0); ++i) {
    auto row = ordered_json::array();
    for (std::int64_t l = 0; l < shares.size(1); ++l)
      row.push_back(std::round(1e3 * shares[i][l].item<double>()) / 1e3);
    rows.push_back(std::move(row));
  }
  return rows;
}

at::Tensor attention_of(const theory::HeadScores& head) {
  auto scores = theory::combined(head, static_cast<std::int64_t>(head.levels.size()));
  if (head.causal) scores = scores.masked_fill(at::ones_like(scores, at::kBool).triu(1), -INFINITY);
  return scores.softmax(1);
}

ordered_json maps_of(TransformerImpl& model, const ModelConfig& config, const at::Tensor& tokens) {
  ordered_json blocks = ordered_json::array();
  theory::walk(model, tokens, [&](std::int64_t, HierarchicalAttentionImpl& attention, const theory::BlockView& seen) {
    ordered_json heads = ordered_json::array();
    for (std::int64_t index = 0; index < config.heads; ++index) {
      const auto head = seen.head(attention, config, index);
      ordered_json levels = ordered_json::array();
      for (const auto& level : head.levels) levels.push_back(matrix(level));
      heads.push_back({{"weights", head.weights},
                       {"attention", matrix(attention_of(head))},
                       {"levels", levels},
                       {"shares", rows_of(theory::level_shares(head))}});
    }
    blocks.push_back({{"heads", std::move(heads)}});
  });
  return blocks;
}

struct Answer {
  std::string label;
  double probability;
};

// A classifier's classes, or the most probable next tokens of a language model.
std::vector<Answer> answers_of(TransformerImpl& model, const std::vector<std::string>& labels, const Config& config,
                               const at::Tensor& tokens) {
  constexpr std::int64_t most = 12;
  const auto logits = model.forward(tokens.unsqueeze(0))[0];
  std::vector<Answer> answers;
  if (config.model.kind == ModelKind::classifier) {
    const auto probabilities = at::softmax(logits, 0);
    for (std::size_t i = 0; i < labels.size(); ++i)
      answers.push_back({labels[i], probabilities[static_cast<std::int64_t>(i)].item<double>()});
    return answers;
  }
  const auto [probabilities, best] = at::softmax(logits[-1], 0).topk(std::min(most, config.model.vocab));
  for (std::int64_t i = 0; i < best.size(0); ++i) {
    const auto token = static_cast<std::uint8_t>(best[i].item<std::int64_t>());
    answers.push_back({data::token_text(config.data.task, token), probabilities[i].item<double>()});
  }
  return answers;
}

// After each token of a language model: the next one that it found most probable, and the probability of the one that came.
ordered_json expectations_of(TransformerImpl& model, const Config& config, const at::Tensor& tokens) {
  auto rows = ordered_json::array();
  const auto probabilities = at::softmax(model.forward(tokens.unsqueeze(0))[0], 1);
  for (std::int64_t i = 0; i < tokens.size(0); ++i) {
    const auto [probability, best] = probabilities[i].max(0);
    ordered_json row = {
        {"token", data::token_text(config.data.task, static_cast<std::uint8_t>(best.item<std::int64_t>()))},
        {"probability", probability.item<double>()},
        {"actual", nullptr}};
    if (i + 1 < tokens.size(0)) row["actual"] = probabilities[i][tokens[i + 1]].item<double>();
    rows.push_back(std::move(row));
  }
  return rows;
}

int run(const Options& options) {
  if (options.threads) at::set_num_threads(*options.threads);
  if (options.index.has_value() == !options.text.empty()) {
    throw std::invalid_argument("give the input to explain, as either --text or --index N.");
  }
  // A text needs no data set.
  const auto loaded = options.index
                          ? load_run(options.folder, at::kCPU)
                          : LoadedRun{{options.folder}, train::load_model({options.folder}, at::kCPU, warn), {}, {}};
  require_hkt(loaded, "hkt explain");
  const auto& config = loaded.config();
  auto input = options.index ? input_of(loaded, options.split, *options.index)
                             : Input{data::encode(config.data.task, options.text), {}};
  // Only a whole image can be shown as one; a text of that length would make a page of tens of megabytes.
  constexpr std::int64_t enough_text = 512;
  const auto wanted = config.data.task == Task::scifar ? config.model.max_length : enough_text;
  const auto longest = std::min(config.model.max_length, options.longest.value_or(wanted));
  const bool is_cut = std::ssize(input.tokens) > longest;
  if (is_cut) {
    if (config.data.task == Task::listops) {
      throw std::invalid_argument(
          fmt::format("the expression has {} tokens, and at most {} can be explained; an expression cannot be cut.",
                      input.tokens.size(), longest));
    }
    warn(fmt::format("the input has {} tokens; only the first {} are used for the prediction and its explanation.",
                     input.tokens.size(), longest));
    input.tokens.resize(static_cast<std::size_t>(longest));
  }
  const at::NoGradGuard no_grad;
  const auto tokens = at::tensor(at::ArrayRef<std::uint8_t>(input.tokens), at::kLong);
  const auto model = theory::exact_copy(*loaded.trained.model);
  const auto answers = answers_of(*model, loaded.trained.identity.labels, config, tokens);
  const auto& best = *std::max_element(answers.begin(), answers.end(),
                                       [](const auto& a, const auto& b) { return a.probability < b.probability; });

  ordered_json data = {{"title", "What " + loaded.directory.folder.string() + " looked at"},
                       {"image", config.data.task == Task::scifar && tokens.size(0) == 1024},
                       {"spaced", config.data.task == Task::listops},
                       {"prediction", best.label},
                       {"label", input.label ? ordered_json(*input.label) : ordered_json()},
                       {"probabilities", ordered_json::array()},
                       {"tokens", ordered_json::array()},
                       {"causal", config.model.mask == Mask::causal}};
  for (const auto& [label, probability] : answers)
    data["probabilities"].push_back({{"label", label}, {"probability", probability}});
  for (const auto token : input.tokens) data["tokens"].push_back(data::token_text(config.data.task, token));
  if (config.model.kind == ModelKind::language) data["expected"] = expectations_of(*model, config, tokens);
  data["blocks"] = maps_of(*model, config.model, tokens);
  data["where"] = train::provenance();
  write_file(options.out, report::explanation(data));
  fmt::print("{}\t{:.4f}{}\n{}\n", printable(best.label), best.probability,
             input.label ? "\t(the label is " + printable(*input.label) + ")" : "",
             printable(std::filesystem::absolute(options.out).string()));
  return 0;
}

}  // namespace

void add_explain(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("explain", "Show a model's attention on one input as an HTML page");
  command.add_option("folder", options->folder, "a run directory")->required();
  command.add_option("--text", options->text, "the input");
  command.add_option("--index", options->index, "instead of --text: the index of a sequence of --split");
  command.add_option("--split", options->split, "train, validation or test")->capture_default_str();
  command.add_option("--length", options->longest, "explain at most this many tokens (default: 512; images: all)")
      ->check(CLI::Range(1, 4096));
  add_page_option(command, options->out);
  command.add_option("--threads", options->threads, "number of CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command.footer("The page needs no network.\n\nExample:\n  hkt explain runs/hkt --text \"[MAX 2 9 [MIN 4 7 ] 0 ]\"");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
