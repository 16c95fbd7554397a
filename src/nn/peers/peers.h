// SPDX-License-Identifier: Apache-2.0
// The attention methods that HKT is compared with, each by its definition, from queries, keys and values. They are for comparing
// accuracy: what a fast implementation of them costs is in their own papers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace hkt::peers {

// q, k and v are [B, heads, T, head width]. lengths [B], int64: the valid tokens of each sequence; padding is no key, and its rows
// of the result, which is like q, are zero.
struct Inputs {
  at::Tensor q, k, v;
  bool causal = false;
  std::optional<at::Tensor> lengths = {};
};

// Longformer (Beltagy et al. 2020): token i sees the tokens j with |i − j| ≤ reach, and the first `globals` tokens see all and are seen
// by all; without separate projections for these.
struct Window {
  std::int64_t reach, globals;
};
at::Tensor window(const Inputs& inputs, const Window& window);

// Keys drawn once, the same in all runs, layers and heads: query i sees floor(u[i, r] · n) for all r, where n is the number of keys
// that it may see at all.
class RandomKeys {
 public:
  // u in [0, 1), float64 [length, count].
  at::Tensor draws(std::int64_t length, std::int64_t count, at::Device device);

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> tables_;  // all that were ever made: a CUDA graph may read them
};

// BigBird (Zaheer et al. 2020) token by token, not block by block: window, global tokens, and `count` random keys of each query.
at::Tensor bigbird(const Inputs& inputs, const Window& window, RandomKeys& keys, std::int64_t count);

// Linformer (Wang et al. 2020): attention to E · k and E · v, where E [features, at least T] is learned, the same for all heads, keys and
// values; padding counts as zeros. It has no causal form.
at::Tensor linformer(const Inputs& inputs, const at::Tensor& reduction);

// Performer (Choromanski et al. 2021), positive features: the kernel exp(q · k / √D) is estimated by φ(q) · φ(k) with
// φ(x) = exp(ω x − |x|² / 2) + 1e-6 for x over the fourth root of D, and ω the rows of `features` [count, D]. Of each query, φ is taken
// relative to its largest exponent.
at::Tensor performer(const Inputs& inputs, const at::Tensor& features);
// Rows of norm √D, orthogonal within each D of them, the same in all runs; float64.
at::Tensor orthogonal_features(std::int64_t count, std::int64_t width);

// H-Transformer-1D (Zhu and Soricut 2021): a token sees its own and the two neighbouring blocks of `block_size` tokens exactly. At level l
// queries and keys are means of 2^l tokens, and a block of as many of these sees, in its two neighbours, what no finer level has shown
// it: score ⟨q(l), k(l)⟩ / √D for each of the 2^l keys. One softmax over all. Under the causal mask queries are no means, since those
// would contain later tokens. block_size is even.
at::Tensor h1d(const Inputs& inputs, std::int64_t block_size);

}  // namespace hkt::peers
