// SPDX-License-Identifier: Apache-2.0
// Reads and writes the section "train" of a config, and the three sections together.
#include "hkt/config.h"

#include <stdexcept>

#include "data/config_json.h"
#include "nn/config_json.h"
#include "train/config_json.h"

namespace hkt {
namespace {

constexpr std::int64_t format = 1;
constexpr std::int64_t most_threads = 1024;
constexpr std::int64_t largest = std::int64_t{1} << 30;  // for values that only memory limits

const fields::Table<TrainConfig>& train_table() {
  static const fields::Table<TrainConfig> table = {
      fields::integer("epochs", &TrainConfig::epochs, 1, largest),
      fields::integer("epoch_steps", &TrainConfig::epoch_steps, 0, largest),
      fields::integer("batch", &TrainConfig::batch, 1, largest),
      fields::integer("accumulate", &TrainConfig::accumulate, 1, largest),
      fields::number("learning_rate", &TrainConfig::learning_rate, 0, 10),
      fields::number("weight_decay", &TrainConfig::weight_decay, 0, 10),
      fields::number("beta2", &TrainConfig::beta2, 0, 1),
      fields::number("warmup", &TrainConfig::warmup, 0, 1),
      fields::number("final_rate", &TrainConfig::final_rate, 0, 1),
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
      fields::number("checkpoint_seconds", &TrainConfig::checkpoint_seconds, 0, 1e9),
      fields::integer("validation_tokens", &TrainConfig::validation_tokens, 0, largest),
      fields::truth("tensorboard", &TrainConfig::tensorboard)};
  return table;
}

}  // namespace

Config config_from(const fields::Json& json) {
  if (!json.is_object()) fields::refuse_value("the config", json, "an object");
  if (!json.contains("format")) {
    throw std::invalid_argument("the config has no \"format\"; it must be " + std::to_string(format) + ".");
  }
  Config config;
  for (const auto& [key, value] : json.items()) {
    if (key == "format") {
      fields::read_integer("format", value, format, format);
    } else if (key == "model") {
      read_json(value, config.model);
    } else if (key == "train") {
      fields::read(train_table(), "train", value, config.train);
    } else if (key == "data") {
      read_json(value, config.data);
    } else {
      fields::refuse_key("the config", key, {"format", "model", "train", "data"});
    }
  }
  return config;
}

fields::OrderedJson to_json(const Config& config) {
  fields::check(train_table(), "train", config.train);
  return {{"format", format},
          {"model", to_json(config.model)},
          {"train", fields::write(train_table(), config.train)},
          {"data", to_json(config.data)}};
}

Config Config::from_json(std::string_view text) { return config_from(fields::parse(text, "the config")); }

std::string Config::to_json() const { return hkt::to_json(*this).dump(2) + "\n"; }

}  // namespace hkt
