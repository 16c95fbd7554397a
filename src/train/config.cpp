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
      fields::integer("epochs", &TrainConfig::epochs, 1, largest,
                      "passes over the training data, or validations of a language model"),
      fields::integer("epoch_steps", &TrainConfig::epoch_steps, 0, largest,
                      "language models: steps between two validations; 0: one pass over the data"),
      fields::integer("batch", &TrainConfig::batch, 1, largest, "sequences in a step"),
      fields::integer("accumulate", &TrainConfig::accumulate, 1, largest,
                      "parts of a batch that are computed one after the other, to save memory"),
      fields::number("learning_rate", &TrainConfig::learning_rate, 0, 10,
                     "the highest learning rate, after the warm-up"),
      fields::number("weight_decay", &TrainConfig::weight_decay, 0, 10, "AdamW's decay, of matrices only"),
      fields::number("beta2", &TrainConfig::beta2, 0, 1, "AdamW's second moment"),
      fields::number("warmup", &TrainConfig::warmup, 0, 1,
                     "share of all steps in which the learning rate rises; then it falls as a cosine"),
      fields::number("final_rate", &TrainConfig::final_rate, 0, 1,
                     "where the cosine ends, as a share of learning_rate"),
      fields::choice("class_weights", &TrainConfig::class_weights,
                     {{"none", ClassWeights::none}, {"balanced", ClassWeights::balanced}},
                     "classifiers: balanced: rare classes count more in the loss and in the choice of the best epoch, "
                     "as if all were "
                     "equally frequent"),
      fields::number("gradient_norm", &TrainConfig::gradient_norm, 0, 1e9,
                     "the global norm of the gradient is clipped to this; 0: never"),
      fields::integer("patience", &TrainConfig::patience, 0, largest,
                      "stop after so many epochs without a better result on validation; 0: never"),
      fields::integer("seed", &TrainConfig::seed, 0, largest, "of initial weights, dropout and the order of the data"),
      fields::text("init", &TrainConfig::init, "a run directory whose weights training starts from, as --init"),
      fields::integer("threads", &TrainConfig::threads, 0, most_threads, "of the CPU; 0: one for each core"),
      fields::choice("device", &TrainConfig::device,
                     {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}},
                     "where to train; auto: CUDA if available"),
      fields::truth("deterministic", &TrainConfig::deterministic, "the same bits on CUDA too, at some cost"),
      fields::choice("padding", &TrainConfig::padding, {{"batch", Padding::batch}, {"full", Padding::full}},
                     "to the longest of a batch, or always to model.max_length"),
      fields::integer("bucket", &TrainConfig::bucket, 1, largest,
                      "batches among which sequences are sorted by length; 1: no sorting"),
      fields::integer("random_start", &TrainConfig::random_start, 1, largest,
                      "classifiers: a training sequence begins at one of its first so many tokens; 1: at the first"),
      fields::choice(
          "precision", &TrainConfig::precision,
          {{"auto", Precision::automatic}, {"float32", Precision::float32}, {"bfloat16", Precision::bfloat16}},
          "auto: bfloat16 by autocast on CUDA, float32 on the CPU"),
      fields::number("checkpoint_seconds", &TrainConfig::checkpoint_seconds, 0, 1e9,
                     "between two checkpoints within an epoch"),
      fields::integer("validation_tokens", &TrainConfig::validation_tokens, 0, largest,
                      "language models: tokens of the validation stream that are scored; 0: all"),
      fields::truth("tensorboard", &TrainConfig::tensorboard, "also write the metrics as TensorBoard event files")};
  return table;
}

}  // namespace

std::vector<fields::KeyDescription> describe(const Config& config) {
  auto keys = describe(config.model);
  const auto add = [&](const std::vector<fields::KeyDescription>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  add(fields::describe(train_table(), "train", config.train));
  add(describe(config.data));
  return keys;
}

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
