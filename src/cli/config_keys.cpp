// SPDX-License-Identifier: Apache-2.0
// Collects the keys of all tasks.
#include "config_keys.h"

#include <algorithm>

#include "data/config_json.h"

namespace hkt::cli {
namespace {

Config config_of(Task task) {
  Config config;
  config.data.task = task;
  if (!is_stream(task)) return config;
  config.model.kind = ModelKind::language;
  config.model.mask = Mask::causal;
  return config;
}

// "listops, text", or "classifiers" where that says the same; nothing for all.
std::string in_words(const std::vector<Task>& tasks) {
  const auto all = data::all_tasks();
  if (tasks.size() == all.size()) return {};
  const auto streams = std::count_if(tasks.begin(), tasks.end(), is_stream);
  const auto all_streams = std::count_if(all.begin(), all.end(), is_stream);
  const auto count = std::ssize(tasks);
  if (streams == 0 && count == std::ssize(all) - all_streams) return "classifiers";
  if (streams == count && count == all_streams) return "language models";
  std::string text;
  for (const auto task : tasks) text += (text.empty() ? "" : ", ") + data::task_name(task);
  return text;
}

}  // namespace

std::vector<ConfigKey> all_config_keys() {
  std::vector<fields::KeyDescription> keys;
  std::vector<std::vector<Task>> tasks;
  for (const auto task : data::all_tasks()) {
    for (auto& key : describe(config_of(task))) {
      const auto known = std::find_if(keys.begin(), keys.end(), [&](const auto& one) { return one.key == key.key; });
      tasks.resize(std::max(tasks.size(), keys.size()));
      if (known != keys.end()) {
        tasks[static_cast<std::size_t>(known - keys.begin())].push_back(task);
        continue;
      }
      keys.push_back(std::move(key));
      tasks.push_back({task});
    }
  }
  std::vector<ConfigKey> all;
  for (const std::string section : {"model.", "train.", "data."}) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].key.starts_with(section)) all.push_back({keys[i], in_words(tasks[i])});
    }
  }
  return all;
}

}  // namespace hkt::cli
