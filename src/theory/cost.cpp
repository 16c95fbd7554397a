// SPDX-License-Identifier: Apache-2.0
// The multiply-adds of an attention layer, counted from its configuration.
#include "hkt/ops.h"
#include "hkt/theory.h"

namespace hkt::theory {
namespace {

// Pairs of a query and a key of a level that are scored.
double pairs_of(const ModelConfig& config, double rows) {
  return config.mask == Mask::causal ? rows * (rows + 1) / 2 : rows * rows;
}

double per_filtered_row(const ModelConfig& config, double channels) {
  const auto taps = static_cast<double>(config.kernel_size);
  return taps * channels * (config.filter == Filter::dense ? channels : 1);
}

double per_convolved_row(const ModelConfig& config) {
  const auto taps = static_cast<double>(config.convolution_taps), width = static_cast<double>(config.width);
  if (config.short_convolution == Convolution::none) return 0;
  return taps * width * (config.short_convolution == Convolution::dense ? width : 1);
}

}  // namespace

LayerCost layer_cost(const ModelConfig& config, std::int64_t length) {
  const auto width = static_cast<double>(config.width), rows = static_cast<double>(length);
  const double key_width = static_cast<double>(config.key_head_count() * config.head_width());
  const double projected = width + (config.psd == Psd::tied ? 0 : key_width);  // channels of queries and keys
  const bool on_input = config.filter_on == FilterOn::input;
  LayerCost cost;
  cost.projections = rows * width * (key_width + width) + rows * per_convolved_row(config);  // values and output
  for (std::int64_t level = 0; level < config.levels; ++level) {
    const auto own = static_cast<double>(level_rows(length, level));
    if (level == 0 || on_input) cost.projections += own * width * projected;
    if (level > 0) cost.filters += own * per_filtered_row(config, on_input ? width : projected);
    cost.scores += pairs_of(config, own) * width;
  }
  cost.values = pairs_of(config, rows) * width;
  return cost;
}

LayerCost standard_layer_cost(const ModelConfig& config, std::int64_t length) {
  auto standard = config;
  standard.levels = 1;
  return layer_cost(standard, length);
}

}  // namespace hkt::theory
