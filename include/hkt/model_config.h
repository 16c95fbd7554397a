// SPDX-License-Identifier: Apache-2.0
// The architecture of a model; the names are the same in C++, on the command line, in Python and in checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hkt/export.h"

namespace hkt {

enum class ModelKind : std::uint8_t { classifier, language };
enum class Filter : std::uint8_t { dense, depthwise, mean };
enum class FilterOn : std::uint8_t { input, projected };
enum class Projections : std::uint8_t { shared, per_level };
enum class Positions : std::uint8_t { sinusoidal, learned, rotary, none };
enum class Mask : std::uint8_t { none, causal };
enum class Psd : std::uint8_t { free, tied, cone };
enum class Pooling : std::uint8_t { mean, last };
enum class Convolution : std::uint8_t { none, depthwise, dense };
enum class ConvolutionOn : std::uint8_t { qk, qkv };
// What a token attends to: all tokens at several resolutions (hkt; of one level, standard attention), or as in one of the methods
// that HKT is compared with: Longformer (window), BigBird, Linformer, Performer, H-Transformer-1D (h1d).
enum class AttentionKind : std::uint8_t { hkt, window, bigbird, linformer, performer, h1d };

// How the levels are weighted: learned, uniform, or all weight on one level, which JSON writes as the number of that level.
struct LevelWeights {
  enum class Kind : std::uint8_t { learned, uniform, one_level };
  Kind kind = Kind::learned;
  std::int64_t level = 0;  // for one_level

  bool operator==(const LevelWeights&) const = default;
};

struct ModelConfig {
  ModelKind kind = ModelKind::classifier;
  AttentionKind attention = AttentionKind::hkt;  // the others are for classifiers, and have one level
  std::int64_t levels = 3;
  std::int64_t heads = 4;
  std::int64_t key_heads = 0;  // heads of keys and values, shared by groups of heads; 0: as many as heads
  std::int64_t width = 128;
  std::int64_t blocks = 2;
  std::int64_t feedforward = 256;
  Filter filter = Filter::dense;
  std::int64_t kernel_size = 2;
  FilterOn filter_on = FilterOn::input;  // projected: the filters act on queries and keys instead of on their inputs
  // A causal convolution at full resolution on the input of queries and keys (qk), and of values (qkv).
  Convolution short_convolution = Convolution::none;
  std::int64_t convolution_taps = 4;
  ConvolutionOn convolution_on = ConvolutionOn::qk;
  std::int64_t window = 64;       // window, bigbird: the tokens on each side that a token sees
  std::int64_t globals = 1;       // window, bigbird: the first tokens, which see all and are seen by all
  std::int64_t random_keys = 64;  // bigbird: further keys of each token, drawn once
  std::int64_t features = 128;    // linformer: rows that keys and values are reduced to; performer: random features
  std::int64_t block_size = 16;   // h1d: the tokens of a block, an even number
  Projections projections = Projections::shared;
  LevelWeights weights = {};
  Positions positions = Positions::sinusoidal;
  double position_scale = 0.02;  // of learned positions at the start; tokens have 1, in a language model 0.02
  Mask mask = Mask::none;
  Psd psd = Psd::free;
  Pooling pooling = Pooling::mean;
  bool biases = true;  // of the feed-forward layers and the head
  bool tied = false;   // the head of a language model uses the embedding's weights
  double dropout = 0.1;
  std::int64_t classes = 10;
  std::int64_t vocab = 256;
  std::int64_t max_length = 1024;

  std::int64_t head_width() const { return width / heads; }
  std::int64_t key_head_count() const { return key_heads == 0 ? heads : key_heads; }

  bool operator==(const ModelConfig&) const = default;
};

// The name in a config.
HKT_EXPORT std::string name_of(Positions positions);
HKT_EXPORT std::string name_of(AttentionKind attention);

// Returns its argument, or throws std::invalid_argument, in one sentence, if a value is out of range or two values
// contradict each other.
HKT_EXPORT const ModelConfig& check(const ModelConfig& model);

// The name and shape of each parameter of a Classifier or LanguageModel, and their total number of elements, without constructing one.
HKT_EXPORT std::map<std::string, std::vector<std::int64_t>> parameter_shapes(const ModelConfig& model);
HKT_EXPORT std::int64_t count_parameters(const ModelConfig& model);

}  // namespace hkt
