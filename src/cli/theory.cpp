// SPDX-License-Identifier: Apache-2.0
// hkt theory: examines the paper's claims on a trained or newly initialised model and real inputs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "files/whole_file.h"
#include "loaded_run.h"
#include "options.h"
#include "progress.h"
#include "theory/claims.h"
#include "theory/lab.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::string split = "validation";
  std::int64_t sequences = 8;
  std::int64_t seed = 0;
  bool json = false, random = false;
  std::optional<int> threads;
};

std::pair<std::int64_t, std::int64_t> shortest_and_longest(const std::vector<at::Tensor>& sequences) {
  const auto shorter = [](const at::Tensor& a, const at::Tensor& b) { return a.size(0) < b.size(0); };
  const auto [low, high] = std::minmax_element(sequences.begin(), sequences.end(), shorter);
  return {low->size(0), high->size(0)};
}

// λ of each level and what it carries, the means over heads.
void print_levels(const nlohmann::ordered_json& block) {
  const auto& heads = block["heads"];
  const auto levels = heads[0]["levels"].size();
  if (levels < 2) return;
  const auto mean = [&](std::size_t level, const char* key) {
    double sum = 0;
    for (const auto& head : heads) {
      const auto& value = head["levels"][level][key];
      sum += value.is_null() ? 0 : value.get<double>();
    }
    return sum / static_cast<double>(heads.size());
  };
  auto line = fmt::format("block {}:", block["block"].get<int>());
  for (std::size_t level = 0; level < levels; ++level)
    line +=
        fmt::format("  level {}: λ {:.2f}, share {:.1f} %", level, mean(level, "weight"), 100 * mean(level, "share"));
  fmt::print("{}\n", line);
}

void print_summary(const nlohmann::ordered_json& result) {
  fmt::print("{}{}, {} sequences of {} to {} tokens\n", result["model"]["random"] ? "random weights, config of " : "",
             printable(result["model"]["run"].get<std::string>()), result["data"]["sequences"].get<int>(),
             result["data"]["shortest"].get<int>(), result["data"]["longest"].get<int>());
  for (const auto& block : result["blocks"]) print_levels(block);
  for (const auto& claim : result["claims"]) {
    fmt::print("\n{} ({})\n  {}: {}\n", claim["title"].get<std::string>(), claim["paper"].get<std::string>(),
               claim["verdict"].get<std::string>(), claim["sentence"].get<std::string>());
  }
}

nlohmann::ordered_json examine(const std::string& folder, const Options& options) {
  auto loaded = load_run(folder, at::kCPU);
  require_hkt(loaded, "hkt theory");
  const auto& config = loaded.config();
  const theory::LabOptions standard;
  const auto coarsest = standard.gaussian_columns << (config.model.levels - 1);  // long enough for all tests
  const auto sequences = inputs_of(loaded, options.split, {options.sequences, coarsest, options.seed});
  if (sequences.empty()) throw std::invalid_argument("the " + options.split + " split has no sequences.");
  auto model = loaded.trained.model;
  if (options.random) {
    torch::manual_seed(static_cast<std::uint64_t>(options.seed));
    model = create_model(config.model);
  }
  const auto lengths = shortest_and_longest(sequences);
  nlohmann::ordered_json examination;
  {
    Progress progress("theory");
    theory::LabOptions lab;
    lab.seed = options.seed;
    lab.progress = [&](auto done, auto total) { progress.show(done, total, "passes over sequences"); };
    examination = theory::examine(*model, sequences, lab);
  }
  nlohmann::ordered_json result = {{"format", 2},
                                   {"model",
                                    {{"run", loaded.directory.folder.string()},
                                     {"checksum", loaded.trained.checksum},
                                     {"random", options.random},
                                     {"config", nlohmann::ordered_json::parse(config.to_json())["model"]}}},
                                   {"data",
                                    {{"split", options.split},
                                     {"sequences", sequences.size()},
                                     {"seed", options.seed},
                                     {"longest", lengths.second},
                                     {"shortest", lengths.first}}},
                                   {"claims", nlohmann::ordered_json::array()}};
  for (const auto& claim : theory::claims_of(examination, config.model)) {
    result["claims"].push_back({{"claim", claim.key},
                                {"paper", claim.paper},
                                {"title", claim.title},
                                {"rule", claim.rule},
                                {"verdict", theory::name(claim.verdict)},
                                {"sentence", claim.sentence}});
  }
  result.update(examination);
  result["provenance"] = train::provenance();
  if (!options.random) write_file(loaded.directory.theory(), fields::dump(result, 1) + "\n");
  return result;
}

int run(const Options& options) {
  if (options.folders.empty()) throw std::invalid_argument("folder is required; it must be a run directory.");
  if (options.threads) at::set_num_threads(*options.threads);
  for (const auto& folder : options.folders) train::open_run(folder);  // fails before hours of work
  auto all = nlohmann::ordered_json::array();
  for (const auto& folder : options.folders) {
    all.push_back(examine(folder, options));
    if (!options.json) print_summary(all.back());
  }
  if (options.json) fmt::print("{}\n", fields::dump(all.size() == 1 ? all.front() : all, 2));
  return 0;
}

}  // namespace

void add_theory(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("theory", "Examine the paper's claims on a trained model");
  command.add_option("folder", options->folders, "run directories");
  command.add_option("--split,--data", options->split, "the split the inputs come from: train, validation or test")
      ->capture_default_str();
  command.add_option("--sequences", options->sequences, "number of sequences, drawn by --seed and balanced by label")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command.add_flag("--random", options->random, "use random weights instead of the trained ones; writes no file");
  command.add_option("--seed", options->seed, "random seed of the sequences, of the tested rows and of --random")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--json", options->json, "print JSON");
  command.add_option("--threads", options->threads, "number of CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command.footer("Writes theory.json into each run directory.\n\nExample:\n  hkt theory runs/hkt");
  command.callback([options, &command, &action] {
    if (command.get_subcommands().empty()) action = [options] { return run(*options); };
  });
  add_sweep_width(command, action);
}

}  // namespace hkt::cli
