// SPDX-License-Identifier: Apache-2.0
// The section "model" of a config: its keys, their ranges and the constraints between them.
#include <algorithm>
#include <stdexcept>

#include "hkt/model_config.h"
#include "hkt/ops.h"
#include "nn/config_json.h"

namespace hkt {
namespace {

constexpr std::int64_t most_blocks = 1024;
constexpr std::int64_t widest = 65536;
constexpr std::int64_t most_taps = 64;
constexpr std::int64_t largest = std::int64_t{1} << 30;  // of sizes that only memory limits
constexpr std::int64_t longest = std::int64_t{1} << 24;  // of a sequence; position tables have one row per token

fields::Field<ModelConfig> weights_field() {
  using Kind = LevelWeights::Kind;
  return {
      "weights",
      [](ModelConfig& model, const std::string& path, const fields::Json& value) {
        if (value == "learned") {
          model.weights = {Kind::learned, 0};
        } else if (value == "uniform") {
          model.weights = {Kind::uniform, 0};
        } else if (value.is_number_integer() && value.get<std::uint64_t>() < static_cast<std::uint64_t>(max_levels)) {
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
      },
      "learned, uniform, or the number of one level",
      "how the levels are weighted",
      {"learned", "uniform"}};
}

const std::vector<std::pair<std::string, Positions>>& position_names() {
  static const std::vector<std::pair<std::string, Positions>> names = {{"sinusoidal", Positions::sinusoidal},
                                                                       {"learned", Positions::learned},
                                                                       {"rotary", Positions::rotary},
                                                                       {"none", Positions::none}};
  return names;
}

const std::vector<std::pair<std::string, AttentionKind>>& attention_names() {
  static const std::vector<std::pair<std::string, AttentionKind>> names = {{"hkt", AttentionKind::hkt},
                                                                           {"window", AttentionKind::window},
                                                                           {"bigbird", AttentionKind::bigbird},
                                                                           {"linformer", AttentionKind::linformer},
                                                                           {"performer", AttentionKind::performer},
                                                                           {"h1d", AttentionKind::h1d}};
  return names;
}

fields::Table<ModelConfig> make_model_table(ModelKind kind) {
  fields::Table<ModelConfig> table = {
      fields::choice("kind", &ModelConfig::kind,
                     {{"classifier", ModelKind::classifier}, {"language", ModelKind::language}},
                     "a classifier of sequences, or a language model"),
      fields::choice("attention", &ModelConfig::attention, attention_names(),
                     "what a token attends to; the others than hkt are for comparison, with one level, in classifiers"),
      fields::integer("levels", &ModelConfig::levels, 1, max_levels,
                      "resolutions of the sequence; 1 is standard attention"),
      fields::integer("heads", &ModelConfig::heads, 1, widest, "attention heads; they divide width"),
      fields::integer("key_heads", &ModelConfig::key_heads, 0, widest,
                      "heads of keys and values, shared by groups of heads; 0: as many as heads"),
      fields::integer("width", &ModelConfig::width, 1, widest, "features of a token"),
      fields::integer("blocks", &ModelConfig::blocks, 1, most_blocks, "layers"),
      fields::integer("feedforward", &ModelConfig::feedforward, 1, largest, "hidden width of the feed-forward layers"),
      fields::choice("filter", &ModelConfig::filter,
                     {{"dense", Filter::dense}, {"depthwise", Filter::depthwise}, {"mean", Filter::mean}},
                     "what halves the sequence: a matrix for each tap, a number for each feature and tap, or the mean"),
      fields::integer("kernel_size", &ModelConfig::kernel_size, 1, most_taps, "taps of the filter, which look back"),
      fields::choice("filter_on", &ModelConfig::filter_on,
                     {{"input", FilterOn::input}, {"projected", FilterOn::projected}},
                     "whether the filter acts on the inputs of queries and keys, or on these themselves"),
      fields::choice(
          "short_convolution", &ModelConfig::short_convolution,
          {{"none", Convolution::none}, {"depthwise", Convolution::depthwise}, {"dense", Convolution::dense}},
          "a causal convolution in front of queries and keys"),
      fields::integer("convolution_taps", &ModelConfig::convolution_taps, 2, most_taps, "taps of short_convolution"),
      fields::choice("convolution_on", &ModelConfig::convolution_on,
                     {{"qk", ConvolutionOn::qk}, {"qkv", ConvolutionOn::qkv}},
                     "whether short_convolution also acts on the input of values"),
      fields::integer("window", &ModelConfig::window, 0, longest, "window, bigbird: tokens that are seen on each side"),
      fields::integer("globals", &ModelConfig::globals, 0, longest,
                      "window, bigbird: the first tokens, which see all and are seen by all"),
      fields::integer("random_keys", &ModelConfig::random_keys, 0, widest, "bigbird: further keys of each token"),
      fields::integer("features", &ModelConfig::features, 1, widest,
                      "linformer: rows that keys and values are reduced to; performer: random features"),
      fields::integer("block_size", &ModelConfig::block_size, 2, widest, "h1d: tokens of a block, an even number"),
      fields::choice("projections", &ModelConfig::projections,
                     {{"shared", Projections::shared}, {"per_level", Projections::per_level}},
                     "whether the levels share the projections of queries and keys"),
      weights_field(),
      fields::choice("positions", &ModelConfig::positions, position_names(), "how positions are encoded"),
      fields::number("position_scale", &ModelConfig::position_scale, 0, 100,
                     "deviation of learned positions at the start; that of tokens is 1, in a language model 0.02"),
      fields::choice("mask", &ModelConfig::mask, {{"none", Mask::none}, {"causal", Mask::causal}},
                     "causal: a token sees only what comes before it"),
      fields::choice("psd", &ModelConfig::psd, {{"free", Psd::free}, {"tied", Psd::tied}, {"cone", Psd::cone}},
                     "constraint on the score kernels that makes them positive semidefinite (docs/theory.md)"),
      fields::truth("biases", &ModelConfig::biases, "of the feed-forward layers and the head"),
      fields::number("dropout", &ModelConfig::dropout, 0, 1, "share of features that are dropped in training"),
      fields::integer("vocab", &ModelConfig::vocab, 1, largest, "tokens that exist; by default what the data needs"),
      fields::integer("max_length", &ModelConfig::max_length, 1, longest, "longest sequence; longer ones are cut")};
  if (kind == ModelKind::language) {
    table.push_back(fields::truth("tied", &ModelConfig::tied, "the head uses the embedding's weights"));
  } else {
    table.push_back(fields::choice("pooling", &ModelConfig::pooling, {{"mean", Pooling::mean}, {"last", Pooling::last}},
                                   "how the tokens become one vector: their mean, or the last"));
    table.push_back(fields::integer("classes", &ModelConfig::classes, 1, largest, "by default those of the data"));
  }
  return table;
}

// The keys that mean something for a kind of model; "kind" is the first.
const fields::Table<ModelConfig>& model_table(ModelKind kind) {
  static const auto classifier = make_model_table(ModelKind::classifier),
                    language = make_model_table(ModelKind::language);
  return kind == ModelKind::language ? language : classifier;
}

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

// What the methods that HKT is compared with can do.
void check_peer(const ModelConfig& model) {
  if (model.block_size % 2 != 0) {
    refuse("model.block_size is " + std::to_string(model.block_size) + "; it must be even.");
  }
  if (model.attention == AttentionKind::hkt) return;
  const auto attention = "\"" + name_of(model.attention) + "\"";
  if (model.kind == ModelKind::language) {
    refuse("model.attention is " + attention + "; a language model needs \"hkt\".");
  }
  if (model.levels != 1) {
    refuse("model.levels is " + std::to_string(model.levels) + "; where model.attention is " + attention +
           " it must be 1.");
  }
  if (model.psd != Psd::free) {
    refuse("model.psd is \"tied\" or \"cone\"; where model.attention is " + attention + " it must be \"free\".");
  }
  if (model.attention == AttentionKind::linformer && model.mask == Mask::causal) {
    refuse("model.mask is \"causal\"; model.attention \"linformer\" has no causal form, it needs \"none\".");
  }
}

// Constraints between fields. psd and projections are independent: a sum of positive semidefinite level kernels with
// weights ≥ 0 is positive semidefinite, whether the levels share projections or not.
void check_together(const ModelConfig& model) {
  if (model.width % model.heads != 0) {
    refuse("model.width is " + std::to_string(model.width) + "; it must be a multiple of model.heads, " +
           std::to_string(model.heads) + ".");
  }
  const std::int64_t head_width = model.head_width();
  if (head_width > max_head_width) {
    refuse("model.width / model.heads is " + std::to_string(head_width) + "; it must be from 1 to " +
           std::to_string(max_head_width) + ".");
  }
  if (model.positions == Positions::rotary && head_width % 2 != 0) {
    refuse("model.width / model.heads is " + std::to_string(head_width) +
           "; it must be even for \"rotary\" positions.");
  }
  if (model.weights.kind == LevelWeights::Kind::one_level && model.weights.level >= model.levels) {
    refuse("model.weights is " + std::to_string(model.weights.level) + "; it must be below model.levels, " +
           std::to_string(model.levels) + ".");
  }
  if (model.heads % model.key_head_count() != 0) {
    refuse("model.key_heads is " + std::to_string(model.key_heads) + "; it must divide model.heads, " +
           std::to_string(model.heads) + " (0: as many).");
  }
  if (model.psd != Psd::free && model.key_head_count() != model.heads) {
    refuse("model.key_heads is " + std::to_string(model.key_heads) +
           "; where keys are computed from queries (model.psd \"tied\" or \"cone\") it must be 0 or model.heads.");
  }
  if (model.filter_on == FilterOn::projected && model.levels > 1 &&
      (model.filter == Filter::dense || model.projections == Projections::per_level || model.psd != Psd::free)) {
    refuse(
        "model.filter_on is \"projected\"; that needs a \"depthwise\" or \"mean\" model.filter, \"shared\" "
        "model.projections and a \"free\" model.psd.");
  }
  if (model.kind == ModelKind::language && model.mask != Mask::causal) {
    refuse("model.mask is \"none\"; a language model needs \"causal\".");
  }
  check_peer(model);
}

}  // namespace

std::string name_of(Positions positions) {
  for (const auto& [name, meaning] : position_names()) {
    if (meaning == positions) return name;
  }
  throw std::invalid_argument("model.positions has an unknown kind.");
}

std::string name_of(AttentionKind attention) {
  for (const auto& [name, meaning] : attention_names()) {
    if (meaning == attention) return name;
  }
  throw std::invalid_argument("model.attention has an unknown kind.");
}

const ModelConfig& check(const ModelConfig& model) {
  fields::check(model_table(model.kind), "model", model);
  check_together(model);
  return model;
}

void read_json(const fields::Json& json, ModelConfig& model) {
  if (json.is_object() && json.contains("kind"))
    model_table(model.kind).front().read(model, "model.kind", json["kind"]);
  fields::read(model_table(model.kind), "model", json, model);
  check_together(model);
}

std::vector<fields::KeyDescription> describe(const ModelConfig& model) {
  return fields::describe(model_table(model.kind), "model", model);
}

fields::OrderedJson to_json(const ModelConfig& model) { return fields::write(model_table(model.kind), check(model)); }

}  // namespace hkt
