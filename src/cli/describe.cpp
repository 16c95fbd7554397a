// SPDX-License-Identifier: Apache-2.0
// hkt data describe: what is in a file of labels and texts, before training on it.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "data_view.h"
#include "experiment_view.h"
#include "files/json_fields.h"
#include "train/presets.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string file, test;
  std::vector<std::string> changes;
  bool json = false;
};

Config config_of(const Options& options) {
  std::vector<std::string> changes = {"data.train=" + fields::dump(options.file)};
  if (!options.test.empty()) changes.push_back("data.test=" + fields::dump(options.test));
  changes.insert(changes.end(), options.changes.begin(), options.changes.end());
  return train::ConfigDraft("text").with(changes).config();
}

int run(const Options& options) {
  const auto config = config_of(options);
  const auto dataset = load_data(config.data);
  const auto summary = data::summarise(dataset, config.model.max_length);
  const auto linear = train::linear_baseline(dataset, config.model.max_length);
  if (options.json) {
    auto json = json_of(summary);
    json["linear_accuracy"] = linear.sequences > 0 ? nlohmann::ordered_json(linear.accuracy()) : nullptr;
    fmt::print("{}\n", fields::dump(json, 2));
    return 0;
  }
  print_summary(summary, config.model.max_length);
  if (linear.sequences > 0) print_linear_score(linear, dataset.train.size());
  return 0;
}

}  // namespace

void add_describe(CLI::App& data, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *data.add_subcommand("describe", "Describe a file of labels and texts as training would see it");
  command.add_option("file", options->file, "a .csv, .tsv or .jsonl file, or a folder FOLDER/CLASS/*.txt")->required();
  command.add_option("--test", options->test, "the same, for the test split");
  command
      .add_option("--set", options->changes, "a key of the config, such as data.text=review or model.max_length=512")
      ->allow_extra_args(true);
  command.add_flag("--json", options->json, "print JSON");
  command.footer(
      "Classes, lengths, what is cut, repeated and contradictory texts, texts that several splits share, and what a\n"
      "linear model of byte n-grams reaches on validation.\n\n"
      "Example:\n  hkt data describe reviews.csv --set data.text=review data.label=stars");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
