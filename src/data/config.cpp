// SPDX-License-Identifier: Apache-2.0
// The keys of a config's section "data", which depend on its task, and what must hold between them.
#include <algorithm>
#include <stdexcept>

#include "data/config_json.h"

namespace hkt {
namespace {

constexpr std::int64_t largest = std::int64_t{1} << 30;  // for values that only memory limits
constexpr std::int64_t most_samples = 10'000'000;        // to generate

const std::vector<std::pair<std::string, Task>>& task_names() {
  static const std::vector<std::pair<std::string, Task>> names = {{"listops", Task::listops},
                                                                  {"scifar", Task::scifar},
                                                                  {"imdb", Task::imdb},
                                                                  {"text", Task::text},
                                                                  {"lm", Task::lm},
                                                                  {"enwik8", Task::enwik8},
                                                                  {"shakespeare", Task::shakespeare},
                                                                  {"wikitext2", Task::wikitext2}};
  return names;
}

const std::vector<std::pair<std::string, Presence>>& presence_names() {
  static const std::vector<std::pair<std::string, Presence>> names = {
      {"auto", Presence::automatic}, {"yes", Presence::yes}, {"no", Presence::no}};
  return names;
}

// The name of a column, or its number, which --set data.text=2 gives as one.
fields::Field<DataConfig> column(const std::string& key, std::string DataConfig::* member, const std::string& what) {
  constexpr std::int64_t most_columns = 10'000;
  return {key,
          [=](DataConfig& data, const std::string& path, const fields::Json& value) {
            if (!value.is_string() && !fields::is_integer(value, 1, most_columns)) {
              fields::refuse_value(path, value, "the name of a column or its number, 1 to 10000");
            }
            data.*member = value.is_string() ? value.get<std::string>() : value.dump();
          },
          [=](const DataConfig& data) { return fields::Json(data.*member); }, "a name or a number from 1", what};
}

// The keys that mean something for a task.
fields::Table<DataConfig> data_table(Task task) {
  constexpr std::int64_t deepest = 1000, most_arguments = 1000;
  fields::Table<DataConfig> table = {
      fields::choice("task", &DataConfig::task, task_names(), "the data set; text and lm are your own files")};
  const auto add = [&](fields::Field<DataConfig> field) { table.push_back(std::move(field)); };
  if (task == Task::listops) {
    add(fields::integer("seed", &DataConfig::seed, 0, largest,
                        "of the generator; the same seed gives the same data everywhere"));
    add(fields::integer("train_samples", &DataConfig::train_samples, 1, most_samples, "expressions for training"));
    add(fields::integer("validation_samples", &DataConfig::validation_samples, 1, most_samples,
                        "expressions for validation"));
    add(fields::integer("test_samples", &DataConfig::test_samples, 1, most_samples, "expressions for test"));
    add(fields::integer("max_depth", &DataConfig::max_depth, 1, deepest,
                        "depth of the deepest digits; the root has depth 1"));
    add(fields::integer("max_arguments", &DataConfig::max_arguments, 2, most_arguments,
                        "most arguments of an operator; the fewest are 2"));
    add(fields::integer("min_tokens", &DataConfig::min_tokens, 1, largest, "fewest tokens of an expression"));
    add(fields::integer("max_tokens", &DataConfig::max_tokens, 1, largest, "most tokens of an expression"));
    return table;
  }
  const bool has_official_split = task == Task::enwik8 || task == Task::wikitext2;
  if (!has_official_split)
    add(fields::number("validation", &DataConfig::validation, 0, 1,
                       "share held out for validation: of each label's examples, or of the end of a stream"));
  if (task == Task::text || task == Task::lm) {
    add(fields::text("train", &DataConfig::train, "the file or folder to train on"));
    add(fields::text("test", &DataConfig::test, "the same for test; may be empty"));
  } else {
    add(fields::text("source", &DataConfig::source, "the official file, folder or archive; empty: the downloaded one"));
  }
  if (task == Task::text) {
    add(column("text", &DataConfig::text, "column of the texts, or their key in .jsonl; empty: by the usual names"));
    add(column("label", &DataConfig::label, "column of the labels, or their key in .jsonl; empty: likewise"));
    add(fields::choice("header", &DataConfig::header, presence_names(),
                       "whether the first line of a .csv or .tsv names the columns"));
    add(fields::choice("quotes", &DataConfig::quotes, presence_names(),
                       "whether fields may be in quotes (RFC 4180); auto: in .csv, not in .tsv"));
  }
  if (task == Task::lm)
    add(fields::text("pattern", &DataConfig::pattern, "names of files that count inside a folder, with wildcards"));
  return table;
}

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

void read_keys(const fields::Json& json, DataConfig& data) {
  if (json.is_object() && json.contains("task")) data_table(data.task).front().read(data, "data.task", json["task"]);
  const auto table = data_table(data.task);
  const auto in = [](const fields::Table<DataConfig>& keys, const std::string& key) {
    return std::any_of(keys.begin(), keys.end(), [&](const auto& field) { return field.key == key; });
  };
  for (const auto& item : json.items()) {
    for (const auto& [name, task] : task_names()) {
      if (in(table, item.key()) || !in(data_table(task), item.key())) continue;
      refuse("data." + item.key() + " is a key of the task \"" + name + "\", and data.task is " +
             table.front().write(data).dump() + ".");
    }
  }
  fields::read(table, "data", json, data);
}

void check_together(const DataConfig& data) {
  if (data.task == Task::listops && data.min_tokens > data.max_tokens) {
    refuse("data.min_tokens is " + std::to_string(data.min_tokens) + "; it must be at most data.max_tokens, " +
           std::to_string(data.max_tokens) + ".");
  }
  // Validation and test take the share each, and something must remain.
  const bool carves_both = data.task == Task::shakespeare || (data.task == Task::lm && data.test.empty());
  if (carves_both && data.validation >= 0.5) {
    refuse("data.validation is " + fields::Json(data.validation).dump() + "; it must be below 0.5 " +
           (data.task == Task::lm ? "without data.test" : "for shakespeare") + ", because test takes the same share.");
  }
}

}  // namespace

void read_json(const fields::Json& json, DataConfig& data) {
  read_keys(json, data);
  check_together(data);
}

fields::OrderedJson to_json(const DataConfig& data) {
  const auto table = data_table(data.task);
  fields::check(table, "data", data);
  check_together(data);
  return fields::write(table, data);
}

std::vector<fields::KeyDescription> describe(const DataConfig& data) {
  return fields::describe(data_table(data.task), "data", data);
}

std::vector<Task> data::all_tasks() {
  std::vector<Task> tasks;
  for (const auto& [name, task] : task_names()) tasks.push_back(task);
  return tasks;
}

std::string data::task_name(Task task) {
  for (const auto& [name, known] : task_names()) {
    if (known == task) return name;
  }
  throw std::invalid_argument("data.task is not a known task.");
}

}  // namespace hkt
