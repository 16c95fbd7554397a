// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of the attention operators, and allocation of their results.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <vector>

namespace hkt::ops {

using AttentionOutput = std::tuple<at::Tensor, at::Tensor>;
using AttentionGradients = std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, at::Tensor, at::Tensor>;

// The arguments of hkt::attention, as they came; they belong to the caller.
struct AttentionInputs {
  at::TensorList q;
  at::TensorList k;
  const at::Tensor& v;
  const at::Tensor& weights;
  bool causal;
  const std::optional<at::Tensor>& lengths;
  std::optional<double> scale;
  c10::SymInt start;

  // Whether several heads of queries share a head of keys.
  bool is_grouped() const { return q[0].sym_size(1) != v.sym_size(1); }
};

// The arguments of hkt::attention_extend and, with `coarse`, of hkt::decode.
struct ExtendInputs {
  at::TensorList q;
  at::TensorList k;
  const at::Tensor& v;
  const at::Tensor& weights;
  const at::Tensor& ends;
  std::optional<double> scale;
  std::optional<at::TensorList> coarse = {};
  bool refresh = false;
};

// Throw an error that names the argument, its value and what is allowed. Work on symbolic sizes.
void check_attention_inputs(const AttentionInputs& inputs);
void check_extend_inputs(const ExtendInputs& inputs);

// Raises the version of tensors that an operator wrote, so that what autograd saved of them does not pass for unchanged.
void count_as_written(at::TensorList tensors);
void check_attention_gradient(const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse,
                              const AttentionInputs& inputs, const at::Tensor& out, const at::Tensor& lse);

// The largest end of a sequence that all caches have room for.
int64_t cache_capacity(const ExtendInputs& inputs);

// The dtype that the weights are converted to: float64 for float64 elements, else float32.
at::ScalarType weight_type(at::ScalarType element);

// Uninitialised results; the gradient of the weights has weight_type. Each has the memory layout of its input, so that
// [B, T, H, D] in memory stays so, or is contiguous if rows of the input overlap or are not contiguous. The last stride is
// always 1, so that no result needs a copy. The memory comes from at::empty or, if given, from `allocator`, which must be
// the current device's: under torch.use_deterministic_algorithms at::empty fills the memory, which is slow on a GPU and
// useless here, because the kernels write every element.
AttentionOutput empty_attention_output(at::TensorList q, const at::Tensor& v, c10::Allocator* allocator = nullptr);
AttentionGradients empty_attention_gradients(const AttentionInputs& inputs, c10::Allocator* allocator = nullptr);

// The gradients that the kernels write: `gradients`, with a gradient of k and v for every head of queries where these share
// heads of keys. sum_over_groups adds those up, always in the same order.
AttentionGradients per_head_gradients(const AttentionInputs& inputs, const AttentionGradients& gradients,
                                      c10::Allocator* allocator = nullptr);
void sum_over_groups(const AttentionGradients& per_head, const AttentionGradients& gradients);

void set_to_zero(const AttentionGradients& gradients);

// The gradients as the caller expects them: that of the weights converted to their own dtype.
AttentionGradients in_types_of_inputs(AttentionGradients gradients, const at::Tensor& weights);

}  // namespace hkt::ops
