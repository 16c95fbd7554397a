// SPDX-License-Identifier: Apache-2.0
// The modules of HKT: Downsample, HierarchicalAttention, Block and Classifier, built from a ModelConfig.
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

// Causal downsampling by two, [B, T, width] -> [B, ceil(T / 2), width], initialised to the mean of kernel_size tokens.
//   weight  [kernel_size, width, width] (dense) or [kernel_size, width] (depthwise); a constant for the filter mean
class HKT_EXPORT DownsampleImpl : public torch::nn::Module {
 public:
  DownsampleImpl(int64_t width, Filter filter, int64_t kernel_size);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
};
TORCH_MODULE(Downsample);

// Multi-head attention over the levels of a hierarchy, [B, T, width] -> [B, T, width].
//   query_key.weight   [2·width, width], queries before keys; [width, width] if keys are computed from queries (tied, cone)
//   cone_g, cone_c     [heads, head width, head width]: k = q · Pᵀ with P = G Gᵀ + C − Cᵀ (cone)
//   value.weight, output.weight  [width, width]
//   alpha              [heads, levels], λ = softmax(alpha) (learned weights of two levels or more)
//   filters.<l>.weight the filter that gives level l from level l − 1, l = 1, 2, …
// With projections per level, each level l has its own query_key.<l>.weight, cone_g.<l> and cone_c.<l>.
class HKT_EXPORT HierarchicalAttentionImpl : public torch::nn::Module {
 public:
  // The queries and keys of all levels, each [B, heads, T_l, head width].
  struct Projected {
    std::vector<at::Tensor> q, k;
  };

  explicit HierarchicalAttentionImpl(const ModelConfig& config);
  // lengths [B]: the number of valid tokens of each sequence; the output of padding rows is zero.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& lengths = {});

  // The steps of forward, for inspection.
  std::vector<at::Tensor> hierarchy(const at::Tensor& x);
  Projected projected(const std::vector<at::Tensor>& levels);
  at::Tensor weights() const;                                          // λ, [heads, levels]
  std::pair<at::Tensor, at::Tensor> projections(int64_t level) const;  // W_Qᵀ and W_Kᵀ, [heads, head width, width]
  at::Tensor cone(int64_t level) const;                                // P, [heads, head width, head width]

  std::vector<torch::nn::Linear> query_key;  // one, or one per level, as are the cones
  std::vector<at::Tensor> cone_g, cone_c;
  std::vector<Downsample> filters;  // filters[l − 1] gives level l
  torch::nn::Linear value, output;
  at::Tensor alpha;

 private:
  std::size_t set_of(int64_t level) const { return query_key.size() == 1 ? 0 : static_cast<std::size_t>(level); }
  at::Tensor query_key_weight(int64_t level) const;

  ModelConfig config_;
  int64_t head_width_;
  std::shared_ptr<positions::Table> rotations_;  // computed when needed
};
TORCH_MODULE(HierarchicalAttention);

// x + attention(norm(x)), then x + feedforward(norm(x)), with dropout on the residual branches.
class HKT_EXPORT BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelConfig& config);
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& lengths = {});

  torch::nn::LayerNorm attention_norm, feedforward_norm;
  HierarchicalAttention attention;
  torch::nn::Linear expand, contract;

 private:
  double dropout_;
};
TORCH_MODULE(Block);

// Tokens to logits: embedding and positions, blocks, a norm, pooling over the valid tokens, a linear head.
class HKT_EXPORT ClassifierImpl : public torch::nn::Module {
 public:
  explicit ClassifierImpl(const ModelConfig& config);
  // tokens [B, T], int64; lengths [B], int64 or int32, if absent all tokens are valid. Returns [B, classes].
  at::Tensor forward(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {});

  // The input of the first block, before dropout, [B, T, width].
  at::Tensor embedded(const at::Tensor& tokens);
  // The output of the last block, [B, T, width].
  at::Tensor hidden(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths = {});

  torch::nn::Embedding embedding;
  at::Tensor positions;  // [max_length, width], for learned positions
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;

 private:
  void check_inputs(const at::Tensor& tokens, const std::optional<at::Tensor>& lengths) const;
  at::Tensor pooled(const at::Tensor& x, const std::optional<at::Tensor>& lengths);

  ModelConfig config_;
  std::shared_ptr<positions::Table> sinusoids_;  // computed when needed, not saved in checkpoints
};
TORCH_MODULE(Classifier);

}  // namespace hkt
