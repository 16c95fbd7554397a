// SPDX-License-Identifier: Apache-2.0
// The names and shapes of the parameters that the modules register. Tests compare the two for every option.
#include <functional>
#include <numeric>

#include "hkt/model_config.h"

namespace hkt {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

void add_attention(Shapes& shapes, const std::string& prefix, const ModelConfig& config) {
  const std::int64_t width = config.width, heads = config.heads, head_width = config.head_width();
  const std::int64_t keys = config.key_head_count() * head_width;  // channels of all key heads
  const bool per_level = config.projections == Projections::per_level;
  for (std::int64_t level = 0; level < (per_level ? config.levels : 1); ++level) {
    const auto suffix = per_level ? std::string(".").append(std::to_string(level)) : std::string();
    shapes[prefix + "query_key" + suffix + ".weight"] = {config.psd == Psd::free ? width + keys : width, width};
    if (config.psd != Psd::cone) continue;
    shapes[prefix + "cone_g" + suffix] = shapes[prefix + "cone_c" + suffix] = {heads, head_width, head_width};
  }
  shapes[prefix + "value.weight"] = {keys, width};
  shapes[prefix + "output.weight"] = {width, width};
  if (config.short_convolution != Convolution::none) {
    auto& shape = shapes[prefix + "convolution.weight"];
    shape = {config.convolution_taps, width};
    if (config.short_convolution == Convolution::dense) shape.push_back(width);
  }
  if (config.attention == AttentionKind::linformer) {
    shapes[prefix + "reduction"] = {config.features, config.max_length};
  }
  for (std::int64_t level = 1; level < config.levels && config.filter != Filter::mean; ++level) {
    auto& shape = shapes[prefix + "filters." + std::to_string(level) + ".weight"];
    shape = {config.kernel_size, config.filter_on == FilterOn::projected ? width + keys : width};
    if (config.filter == Filter::dense) shape.push_back(width);
  }
  if (config.levels > 1 && config.weights.kind == LevelWeights::Kind::learned) {
    shapes[prefix + "alpha"] = {heads, config.levels};
  }
}

void add_layer(Shapes& shapes, const std::string& name, std::vector<std::int64_t> weight, bool bias = true) {
  if (bias) shapes[name + ".bias"] = {weight.front()};
  shapes[name + ".weight"] = std::move(weight);
}

}  // namespace

Shapes parameter_shapes(const ModelConfig& config) {
  const std::int64_t width = check(config).width;
  Shapes shapes;
  shapes["embedding.weight"] = {config.vocab, width};
  if (config.positions == Positions::learned) shapes["positions"] = {config.max_length, width};
  for (std::int64_t block = 0; block < config.blocks; ++block) {
    const auto prefix = "blocks." + std::to_string(block) + ".";
    add_layer(shapes, prefix + "attention_norm", {width});
    add_attention(shapes, prefix + "attention.", config);
    add_layer(shapes, prefix + "feedforward_norm", {width});
    add_layer(shapes, prefix + "expand", {config.feedforward, width}, config.biases);
    add_layer(shapes, prefix + "contract", {width, config.feedforward}, config.biases);
  }
  add_layer(shapes, "norm", {width});
  const bool language = config.kind == ModelKind::language;
  if (!language || !config.tied)
    add_layer(shapes, "head", {language ? config.vocab : config.classes, width}, config.biases);
  return shapes;
}

std::int64_t count_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : parameter_shapes(config)) {
    count += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  return count;
}

}  // namespace hkt
