// The tables of the config's keys, and what must hold between them.
#include "hkt/config.h"

#include <algorithm>

#include "files/json_fields.h"
#include "hkt/kernels.h"

namespace hkt {
namespace {

constexpr std::int64_t format = 1;

constexpr std::uint16_t most_levels = kernels::max_levels;
constexpr std::int64_t most_blocks = 1024;
constexpr std::int64_t widest = 65536;
constexpr std::int64_t most_taps = 64;
constexpr std::int64_t most_threads = 1024;
constexpr std::int64_t largest = std::int64_t{1} << 30;  // of what only memory limits
constexpr std::int64_t longest = std::int64_t{1}
                                 << 24;            // a sequence; tables of positions have a row for each of its tokens
constexpr std::int64_t most_samples = 10'000'000;  // that are generated

fields::Field<ModelConfig> weights_field() {
  using Kind = LevelWeights::Kind;
  return {"weights",
          [](ModelConfig& model, const std::string& path, const fields::Json& value) {
            if (value == "learned") {
              model.weights = {Kind::learned, 0};
            } else if (value == "uniform") {
              model.weights = {Kind::uniform, 0};
            } else if (value.is_number_integer() && value.get<std::uint64_t>() < std::uint64_t{most_levels}) {
              model.weights = {Kind::one_level, value.get<std::int64_t>()};
            } else {
              fields::refuse_value(path, value, "\"learned\", \"uniform\" or the number of one level, 0 to levels - 1");
            }
          },
          [](const ModelConfig& model) {
            switch (model.weights.kind) {
              case Kind::learned:
                return fields::Json("learned");
              case Kind::uniform:
                return fields::Json("uniform");
              case Kind::one_level:
                return fields::Json(model.weights.level);
            }
            throw std::invalid_argument("model.weights has an unknown kind.");
          }};
}

const fields::Table<ModelConfig>& model_table() {
  static const fields::Table<ModelConfig> table = {
      fields::integer("levels", &ModelConfig::levels, 1, most_levels),
      fields::integer("heads", &ModelConfig::heads, 1, widest),
      fields::integer("width", &ModelConfig::width, 1, widest),
      fields::integer("blocks", &ModelConfig::blocks, 1, most_blocks),
      fields::integer("feedforward", &ModelConfig::feedforward, 1, largest),
      fields::choice("filter", &ModelConfig::filter,
                     {{"dense", Filter::dense}, {"depthwise", Filter::depthwise}, {"mean", Filter::mean}}),
      fields::integer("kernel_size", &ModelConfig::kernel_size, 1, most_taps),
      fields::choice("projections", &ModelConfig::projections,
                     {{"shared", Projections::shared}, {"per_level", Projections::per_level}}),
      weights_field(),
      fields::choice("positions", &ModelConfig::positions,
                     {{"sinusoidal", Positions::sinusoidal},
                      {"learned", Positions::learned},
                      {"rotary", Positions::rotary},
                      {"none", Positions::none}}),
      fields::choice("mask", &ModelConfig::mask, {{"none", Mask::none}, {"causal", Mask::causal}}),
      fields::choice("psd", &ModelConfig::psd, {{"free", Psd::free}, {"tied", Psd::tied}, {"cone", Psd::cone}}),
      fields::choice("pooling", &ModelConfig::pooling, {{"mean", Pooling::mean}, {"last", Pooling::last}}),
      fields::number("dropout", &ModelConfig::dropout, 0, 1),
      fields::integer("classes", &ModelConfig::classes, 1, largest),
      fields::integer("vocab", &ModelConfig::vocab, 1, largest),
      fields::integer("max_length", &ModelConfig::max_length, 1, longest)};
  return table;
}

const fields::Table<TrainConfig>& train_table() {
  static const fields::Table<TrainConfig> table = {
      fields::integer("epochs", &TrainConfig::epochs, 1, largest),
      fields::integer("batch", &TrainConfig::batch, 1, largest),
      fields::number("learning_rate", &TrainConfig::learning_rate, 0, 10),
      fields::number("weight_decay", &TrainConfig::weight_decay, 0, 10),
      fields::number("warmup", &TrainConfig::warmup, 0, 1),
      fields::number("gradient_norm", &TrainConfig::gradient_norm, 0, 1e9),
      fields::integer("patience", &TrainConfig::patience, 0, largest),
      fields::integer("seed", &TrainConfig::seed, 0, largest),
      fields::integer("threads", &TrainConfig::threads, 0, most_threads),
      fields::choice("device", &TrainConfig::device,
                     {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}}),
      fields::truth("deterministic", &TrainConfig::deterministic),
      fields::choice("padding", &TrainConfig::padding, {{"batch", Padding::batch}, {"full", Padding::full}}),
      fields::integer("bucket", &TrainConfig::bucket, 1, largest),
      fields::choice(
          "precision", &TrainConfig::precision,
          {{"auto", Precision::automatic}, {"float32", Precision::float32}, {"bfloat16", Precision::bfloat16}}),
      fields::number("checkpoint_seconds", &TrainConfig::checkpoint_seconds, 0, 1e9)};
  return table;
}

const std::vector<std::pair<std::string, Task>>& task_names() {
  static const std::vector<std::pair<std::string, Task>> names = {
      {"listops", Task::listops}, {"scifar", Task::scifar}, {"imdb", Task::imdb}, {"text", Task::text}};
  return names;
}

// The keys that mean something for a task.
fields::Table<DataConfig> data_table(Task task) {
  constexpr std::int64_t deepest = 1000, most_arguments = 1000;
  fields::Table<DataConfig> table = {fields::choice("task", &DataConfig::task, task_names())};
  const auto add = [&](fields::Field<DataConfig> field) { table.push_back(std::move(field)); };
  if (task == Task::listops) {
    add(fields::integer("seed", &DataConfig::seed, 0, largest));
    add(fields::integer("train_samples", &DataConfig::train_samples, 1, most_samples));
    add(fields::integer("validation_samples", &DataConfig::validation_samples, 1, most_samples));
    add(fields::integer("test_samples", &DataConfig::test_samples, 1, most_samples));
    add(fields::integer("max_depth", &DataConfig::max_depth, 1, deepest));
    add(fields::integer("max_arguments", &DataConfig::max_arguments, 2, most_arguments));
    add(fields::integer("min_tokens", &DataConfig::min_tokens, 1, largest));
    add(fields::integer("max_tokens", &DataConfig::max_tokens, 1, largest));
    return table;
  }
  add(fields::number("validation", &DataConfig::validation, 0, 1));
  if (task == Task::text) {
    add(fields::text("train", &DataConfig::train));
    add(fields::text("test", &DataConfig::test));
  } else {
    add(fields::text("source", &DataConfig::source));
  }
  return table;
}

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

// The levels' kernels are summed with weights ≥ 0, so psd "tied" and "cone" hold per level, and go with either kind of
// projections.
void check_together(const ModelConfig& model) {
  if (model.width % model.heads != 0) {
    refuse("model.width is " + std::to_string(model.width) + "; it must be a multiple of model.heads, " +
           std::to_string(model.heads) + ".");
  }
  const std::int64_t head_width = model.width / model.heads;
  if (head_width > kernels::max_width) {
    refuse("model.width / model.heads is " + std::to_string(head_width) + "; it must be from 1 to " +
           std::to_string(kernels::max_width) + ".");
  }
  if (model.positions == Positions::rotary && head_width % 2 != 0) {
    refuse("model.width / model.heads is " + std::to_string(head_width) +
           "; it must be even for \"rotary\" positions.");
  }
  if (model.weights.kind == LevelWeights::Kind::one_level && model.weights.level >= model.levels) {
    refuse("model.weights is " + std::to_string(model.weights.level) + "; it must be below model.levels, " +
           std::to_string(model.levels) + ".");
  }
}

void read_data(const fields::Json& json, DataConfig& data) {
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
}

}  // namespace

const ModelConfig& check(const ModelConfig& model) {
  fields::check(model_table(), "model", model);
  check_together(model);
  return model;
}

Config Config::from_json(std::string_view text) {
  const auto json = fields::parse(text, "the config");
  if (!json.is_object()) fields::refuse_value("the config", json, "an object");
  if (!json.contains("format")) refuse("the config has no \"format\"; it must be " + std::to_string(format) + ".");
  Config config;
  for (const auto& [key, value] : json.items()) {
    if (key == "format") {
      fields::read_integer("format", value, format, format);
    } else if (key == "model") {
      fields::read(model_table(), "model", value, config.model);
    } else if (key == "train") {
      fields::read(train_table(), "train", value, config.train);
    } else if (key == "data") {
      read_data(value, config.data);
    } else {
      fields::refuse_key("the config", key, {"format", "model", "train", "data"});
    }
  }
  check_together(config.model);
  check_together(config.data);
  return config;
}

std::string Config::to_json() const {
  check(model);
  fields::check(train_table(), "train", train);
  fields::check(data_table(data.task), "data", data);
  check_together(data);
  const fields::OrderedJson json = {{"format", format},
                                    {"model", fields::write(model_table(), model)},
                                    {"train", fields::write(train_table(), train)},
                                    {"data", fields::write(data_table(data.task), data)}};
  return json.dump(2) + "\n";
}

}  // namespace hkt
