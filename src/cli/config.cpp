// SPDX-License-Identifier: Apache-2.0
// hkt config: every key of a config, with its default, its range and what it means.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "config_keys.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "train/presets.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string preset;
  std::vector<std::string> changes;
  bool json = false;
};

std::vector<ConfigKey> keys_of(const Options& options) {
  if (options.preset.empty()) {
    if (!options.changes.empty()) throw std::invalid_argument("--set needs a preset or a config file.");
    return all_config_keys();
  }
  std::vector<ConfigKey> keys;
  for (auto& key : describe(train::ConfigDraft(options.preset).with(options.changes).config())) {
    keys.push_back({std::move(key), {}});
  }
  return keys;
}

void print(const std::vector<ConfigKey>& keys) {
  std::string section;
  for (const auto& [key, tasks] : keys) {
    const auto own = key.key.substr(0, key.key.find('.'));
    if (own != section)
      fmt::print("{}{:27} {:12} what it is [what it may be]\n", section.empty() ? "" : "\n", own, "default");
    section = own;
    const auto value = key.value.is_string() ? key.value.get<std::string>() : key.value.dump();
    fmt::print("  {:25} {:12} {} [{}]{}\n", key.key, printable(value), key.what, key.allowed,
               tasks.empty() ? "" : " for " + tasks);
  }
}

nlohmann::ordered_json json_of(const std::vector<ConfigKey>& keys) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [key, tasks] : keys) {
    nlohmann::ordered_json json = {
        {"key", key.key}, {"default", key.value}, {"allowed", key.allowed}, {"what", key.what}};
    if (!key.choices.empty()) json["choices"] = key.choices;
    if (!tasks.empty()) json["for"] = tasks;
    list.push_back(std::move(json));
  }
  return list;
}

int run(const Options& options) {
  const auto keys = keys_of(options);
  if (options.json) {
    fmt::print("{}\n", fields::dump(json_of(keys), 2));
  } else {
    print(keys);
  }
  return 0;
}

}  // namespace

void add_config(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("config", "List every key of a config: default, range and meaning");
  command.add_option("preset", options->preset, "a preset or a config file: its keys with its values; else all keys");
  command.add_option("--set", options->changes, "as in hkt train: section.key=value")->allow_extra_args(true);
  command.add_flag("--json", options->json, "print JSON");
  command.footer("Examples:\n  hkt config\n  hkt config text --json");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
