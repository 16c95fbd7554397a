// SPDX-License-Identifier: Apache-2.0
// The modules of HKT, built from a ModelConfig: Downsample, ShortConvolution, HierarchicalAttention, Block, and the two models,
// Classifier and LanguageModel. decoding.h has the state with which a language model generates.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hkt/config.h"
#include "hkt/export.h"

namespace hkt {

namespace positions {
struct Table;
}
namespace peers {
class RandomKeys;
}

// Causal downsampling by two, [B, T, width] -> [B, ceil(T / 2), width], initialised to the mean of kernel_size tokens.
//   weight  [kernel_size, width, width] (dense) or [kernel_size, width] (depthwise); a constant for the filter mean
class HKT_EXPORT DownsampleImpl : public torch::nn::Module {
 public:
  DownsampleImpl(int64_t width, Filter filter, int64_t kernel_size);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
};
TORCH_MODULE(Downsample);

// A causal convolution at full resolution, [B, T, width] -> [B, T, width], initialised so that the previous token counts.
//   weight  [taps, width] (depthwise): y[t] = x[t] + Σ_r x[t − r] · weight[r], at first x[t] + x[t − 1]
//           [taps, width, width] (dense): y[t] = Σ_r x[t − r] · weight[r], at first the mean of `taps` tokens
class HKT_EXPORT ShortConvolutionImpl : public torch::nn::Module {
 public:
  ShortConvolutionImpl(int64_t width, Convolution kind, int64_t taps);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
};
TORCH_MODULE(ShortConvolution);

// Multi-head attention over the levels of a hierarchy, [B, T, width] -> [B, T, width].
//   query_key.weight   [width + key width, width], queries before keys, key width = key_heads · head width;
//                      [width, width] if keys are computed from queries (tied, cone)
//   cone_g, cone_c     [heads, head width, head width]: k = q · Pᵀ with P = G Gᵀ + C − Cᵀ (cone)
//   value.weight       [key width, width]
//   output.weight      [width, width]
//   alpha              [heads, levels], λ = softmax(alpha) (learned weights of two levels or more)
//   filters.<l>.weight the filter that gives level l from level l − 1, l = 1, 2, …; of the inputs, or with
//                      filter_on "projected" of queries and keys, [kernel_size, width + key width]
//   convolution.weight see ShortConvolution
//   reduction          [features, max_length], what makes rows of keys and values (linformer)
// With projections per level, each level l has its own query_key.<l>.weight, cone_g.<l> and cone_c.<l>.
// With another attention than hkt, queries, keys and values of its one level go to that method.
class HKT_EXPORT HierarchicalAttentionImpl : public torch::nn::Module {
 public:
  // The queries and keys of all levels, [B, heads, T_l, head width] and [B, key heads, T_l, head width].
  struct Projected {
    std::vector<at::Tensor> q, k;
  };

  explicit HierarchicalAttentionImpl(const ModelConfig& config);
  // lengths [B]: the number of valid tokens of each sequence; the output of padding rows is zero.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& lengths = {});

  // The steps of forward, for inspection. The hierarchy is that of the inputs; with filter_on "projected" it is the input
  // alone, since its coarse levels are those of queries and keys.
  std::vector<at::Tensor> hierarchy(const at::Tensor& x);
  Projected projected(const std::vector<at::Tensor>& levels);
  // The rest of forward: values from their input, attention by these queries and keys, and the projection of the output.
  at::Tensor attended(const Projected& projected, const at::Tensor& value_input,
                      const std::optional<at::Tensor>& lengths = {});
  at::Tensor weights() const;                                          // λ, [heads, levels]
  std::pair<at::Tensor, at::Tensor> projections(int64_t level) const;  // W_Qᵀ and W_Kᵀ, [heads, head width, width]
  at::Tensor cone(int64_t level) const;                                // P, [heads, head width, head width]
  // The weight of the linear layer that gives q and k of a level.
  at::Tensor query_key_weight(int64_t level) const;
  // Queries and keys from rows [B, R, heads + key heads, head width] that positions have already been applied to; rows of
  // queries alone where keys are computed from them.
  std::pair<at::Tensor, at::Tensor> queries_and_keys(const at::Tensor& rows, int64_t level) const;

  const ModelConfig& config() const { return config_; }

  std::vector<torch::nn::Linear> query_key;  // one, or one per level, as are the cones
  std::vector<at::Tensor> cone_g, cone_c;
  std::vector<Downsample> filters;  // filters[l − 1] gives level l
  ShortConvolution convolution = nullptr;
  torch::nn::Linear value, output;
  at::Tensor alpha;
  at::Tensor reduction;        // linformer
  at::Tensor random_features;  // performer, [features, head width]; the same in all models, so not in checkpoints

 private:
  at::Tensor attend(const Projected& projected, const at::Tensor& v, const std::optional<at::Tensor>& lengths);
  void add_peer();
  std::size_t set_of(int64_t level) const { return query_key.size() == 1 ? 0 : static_cast<std::size_t>(level); }
  std::vector<at::Tensor> level_rows(const std::vector<at::Tensor>& levels);

  ModelConfig config_;
  std::shared_ptr<positions::Table> rotations_;     // computed when needed
  std::shared_ptr<peers::RandomKeys> random_keys_;  // of bigbird, likewise
};
TORCH_MODULE(HierarchicalAttention);

// x + attention(norm(x)), then x + feedforward(norm(x)), with dropout on the residual branches.
class HKT_EXPORT BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelConfig& config);
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& lengths = {});
  // The rest of the block, from its input and the output of its attention.
  at::Tensor after_attention(const at::Tensor& input, const at::Tensor& attended);

  torch::nn::LayerNorm attention_norm, feedforward_norm;
  HierarchicalAttention attention;
  torch::nn::Linear expand, contract;

 private:
  double dropout_;
};
TORCH_MODULE(Block);

// What both models share: embedding and positions, blocks, a norm.
class HKT_EXPORT TransformerImpl : public torch::nn::Module {
 public:
  // tokens [B, T], int64; lengths [B], int64 or int32, if absent all tokens are valid. Returns logits.
  virtual at::Tensor forward(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {}) = 0;

  // The input of the first block, before dropout, [B, T, width].
  at::Tensor embedded(const at::Tensor& tokens);
  // The same for tokens at other positions than the first ones: `position` is int64 like tokens, below `end`.
  at::Tensor embedded(const at::Tensor& tokens, const at::Tensor& position, int64_t end);
  // The output of the last block, [B, T, width].
  at::Tensor hidden(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {});
  const ModelConfig& config() const { return config_; }

  torch::nn::Embedding embedding;
  at::Tensor positions;  // [max_length, width], for learned positions
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;

 protected:
  explicit TransformerImpl(const ModelConfig& config);
  // Creates and registers positions, blocks and norm; the derived model registers its head after them.
  void add_blocks();

 private:
  void check_inputs(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) const;

  ModelConfig config_;
  std::shared_ptr<hkt::positions::Table> sinusoids_;  // computed when needed, not saved in checkpoints
};

// Either of the two models.
using Transformer = std::shared_ptr<TransformerImpl>;

// Tokens to the logits of classes, [B, classes]: pooling over the valid tokens and a linear head.
class HKT_EXPORT ClassifierImpl : public TransformerImpl {
 public:
  explicit ClassifierImpl(const ModelConfig& config);
  at::Tensor forward(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {}) override;

  torch::nn::Linear head;

 private:
  at::Tensor pooled(const at::Tensor& x, const std::optional<at::Tensor>& lengths);
};
TORCH_MODULE(Classifier);

// Tokens to the logits of each next token, [B, T, vocab]. Initialised as GPT-2: N(0, 0.02²), and by 1/√(2·blocks) less for
// the layers that write to the residual stream.
class HKT_EXPORT LanguageModelImpl : public TransformerImpl {
 public:
  explicit LanguageModelImpl(const ModelConfig& config);
  at::Tensor forward(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {}) override;

  // From the output of the last block, [B, n, width], to logits.
  at::Tensor logits(const at::Tensor& x);

  torch::nn::Linear head = nullptr;  // absent if it is tied to the embedding
};
TORCH_MODULE(LanguageModel);

// The model that config.kind names.
HKT_EXPORT Transformer create_model(const ModelConfig& config);

}  // namespace hkt
