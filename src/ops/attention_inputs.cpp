// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of hkt::attention, hkt::attention_extend and hkt::decode, and allocation of their results.
#include "attention_inputs.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "hkt/ops.h"
#include "kernels/attention.h"

namespace hkt::ops {
namespace {

static_assert(max_levels == kernels::max_levels && max_head_width == kernels::max_width);

bool is_supported(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

// An argument's name, formatted only when an error is reported.
struct Name {
  const char* op;
  const char* text;
  std::optional<size_t> level = {};
};
std::ostream& operator<<(std::ostream& out, const Name& name) {
  out << name.op << ": " << name.text;
  return name.level ? out << "[" << *name.level << "]" : out;
}

void check_kind(const at::Tensor& tensor, const Name& name, int64_t rank, const at::Tensor& v) {
  TORCH_CHECK(tensor.defined(), name, " is missing");
  TORCH_CHECK(tensor.layout() == at::kStrided, name, " is ", tensor.layout(),
              "; only dense (strided) tensors are allowed");
  TORCH_CHECK(tensor.dim() == rank, name, " has ", tensor.dim(), " dimensions, must have ", rank);
  TORCH_CHECK(tensor.device() == v.device(), name, " is on ", tensor.device(), ", v is on ", v.device(),
              "; all tensors must be on the same device");
}

// What q and k of every level have in common: the type, the batch, the heads, the width.
void check_level(const at::Tensor& tensor, const Name& name, const at::Tensor& v, const c10::SymInt& heads,
                 const c10::SymInt& width) {
  check_kind(tensor, name, 4, v);
  TORCH_CHECK(tensor.scalar_type() == v.scalar_type(), name, " is ", tensor.scalar_type(), ", v is ", v.scalar_type(),
              "; q, k and v must have the same dtype");
  TORCH_CHECK(tensor.sym_size(0) == v.sym_size(0), name, " has batch size ", tensor.sym_size(0), ", v has ",
              v.sym_size(0));
  TORCH_CHECK(tensor.sym_size(1) == heads, name, " has ", tensor.sym_size(1), " heads, must have ", heads, ", as ",
              name.text[0] == 'q' ? "q[0]" : "v", " has");
  TORCH_CHECK(tensor.sym_size(3) == width, name, " has width ", tensor.sym_size(3), ", q[0] has ", width);
}

void check_per_sequence(const at::Tensor& integers, const Name& name, const at::Tensor& v) {
  check_kind(integers, name, 1, v);
  TORCH_CHECK(integers.scalar_type() == at::kLong || integers.scalar_type() == at::kInt, name, " is ",
              integers.scalar_type(), ", must be int64 or int32");
  TORCH_CHECK(integers.sym_size(0) == v.sym_size(0), name, " has ", integers.sym_size(0),
              " entries, must have one per sequence, ", v.sym_size(0));
}

// Everything but the number of rows.
void check_tensors(const char* op, at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights) {
  const auto levels = q.size();
  TORCH_CHECK(levels >= 1 && levels <= kernels::max_levels, op, ": q has ", levels, " levels, must have 1 to ",
              kernels::max_levels);
  TORCH_CHECK(k.size() == levels, op, ": k has ", k.size(), " levels, q has ", levels);
  check_kind(v, {op, "v"}, 4, v);
  TORCH_CHECK(is_supported(v.scalar_type()), op, ": v is ", v.scalar_type(),
              ", must be float32, float64, bfloat16 or float16");
  check_kind(q[0], {op, "q[0]"}, 4, v);
  const c10::SymInt width = q[0].sym_size(3);
  TORCH_CHECK(width >= 1 && width <= kernels::max_width, op, ": q[0] has width ", width, ", must be 1 to ",
              kernels::max_width);
  TORCH_CHECK(v.sym_size(3) >= 1 && v.sym_size(3) <= kernels::max_width, op, ": v has width ", v.sym_size(3),
              ", must be 1 to ", kernels::max_width);
  const c10::SymInt heads = q[0].sym_size(1);
  const c10::SymInt key_heads = v.sym_size(1);
  TORCH_CHECK(key_heads == heads || (key_heads >= 1 && heads % key_heads == 0), op, ": q has ", heads, " heads, v has ",
              key_heads, "; the heads of q must be a multiple of those of k and v");
  for (size_t level = 0; level < levels; ++level) {
    check_level(q[level], {op, "q", level}, v, heads, width);
    check_level(k[level], {op, "k", level}, v, key_heads, width);
  }
  check_kind(weights, {op, "weights"}, 2, v);
  TORCH_CHECK(weights.sym_size(0) == heads && weights.sym_size(1) == static_cast<int64_t>(levels), op, ": weights is ",
              weights.sym_sizes(), ", must be [heads, levels] = [", heads, ", ", levels, "]");
  TORCH_CHECK(is_supported(weights.scalar_type()), op, ": weights is ", weights.scalar_type(),
              ", must be float32, float64, bfloat16 or float16");
}

// level_rows of a length that may be symbolic: halved again and again, as hkt::downsample does, so that torch.export need not
// prove that this is the same.
c10::SymInt level_rows(const c10::SymInt& length, size_t level) {
  c10::SymInt rows = length;
  for (size_t i = 0; i < level; ++i) rows = (rows + 1) / 2;
  return rows;
}

void check_key_rows(const at::Tensor& k, size_t level, const at::Tensor& v) {
  const c10::SymInt rows = level_rows(v.sym_size(2), level);
  TORCH_CHECK(k.sym_size(2) == rows, "hkt::attention: k[", level, "] has length ", k.sym_size(2), ", must be ", rows,
              " = ceil(", v.sym_size(2), " / ", int64_t{1} << level, "), the length of v halved ", level, " times");
}

// Positions start … start + n − 1, of which level l has the coarse positions from start >> l on.
void check_query_rows(at::TensorList q, const c10::SymInt& start, const c10::SymInt& length) {
  TORCH_CHECK(start >= 0, "hkt::attention: start is ", start, ", must not be negative");
  // Not start + rows <= length: that sum could overflow.
  TORCH_CHECK(start <= length - q[0].sym_size(2), "hkt::attention: q[0] has ", q[0].sym_size(2), " rows from position ",
              start, " on, v has ", length, " positions; start + rows must be at most that");
  const c10::SymInt end = start + q[0].sym_size(2);
  for (size_t level = 1; level < q.size(); ++level) {
    const c10::SymInt step = int64_t{1} << level;
    const c10::SymInt rows = level_rows(end, level) - start / step;
    TORCH_CHECK(q[level].sym_size(2) == rows, "hkt::attention: q[", level, "] has length ", q[level].sym_size(2),
                ", must be ", rows, ": positions ", start, " to ", end, " in steps of ", step);
  }
}

at::Tensor empty_by(c10::Allocator& allocator, at::IntArrayRef sizes, at::IntArrayRef strides,
                    const at::TensorOptions& options) {
  return at::detail::empty_strided_generic(
      sizes, strides, &allocator, c10::DispatchKeySet(options.computeDispatchKey()), options.dtype().toScalarType());
}

at::Tensor empty_dense(c10::SymIntArrayRef sizes, const at::TensorOptions& options, c10::Allocator* allocator) {
  if (allocator == nullptr) return at::empty_symint(sizes, options);
  const auto known = C10_AS_INTARRAYREF_SLOW(sizes);
  return empty_by(*allocator, known, c10::contiguous_strides(known), options);
}

// Whether rows are contiguous and do not overlap.
bool has_separate_rows(const at::Tensor& tensor) {
  if (tensor.sym_stride(-1) != 1) return false;
  for (int64_t dim = 0; dim + 1 < tensor.dim(); ++dim) {
    if (tensor.sym_size(dim) > 1 && tensor.sym_stride(dim) < tensor.sym_size(-1)) return false;
  }
  return true;
}

// Uninitialised, with the dimensions in the same order in memory as in `tensor`, but without its gaps. Where rows overlap
// (windows, expanded views) strides define no such order, and the last dimension might not come last: then contiguous.
at::Tensor empty_dense_like(const at::Tensor& tensor, c10::Allocator* allocator) {
  if (!has_separate_rows(tensor)) return empty_dense(tensor.sym_sizes(), tensor.options(), allocator);
  if (allocator == nullptr) return at::empty_like(tensor);
  if (tensor.is_non_overlapping_and_dense())
    return empty_by(*allocator, tensor.sizes(), tensor.strides(), tensor.options());
  const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());  // as at::empty_like
  return empty_by(*allocator, tensor.sizes(), strides, tensor.options());
}

// Uninitialised, of other sizes than `like`. If those are the same, like it; else [B, T, H, D] in memory if `order` has heads
// inside of rows, and contiguous if not.
at::Tensor empty_ordered_like(const at::Tensor& like, c10::SymIntArrayRef sizes, const at::Tensor& order,
                              c10::Allocator* allocator) {
  if (like.sym_sizes() == sizes) return empty_dense_like(like, allocator);
  const bool heads_inside = order.sym_stride(1) < order.sym_stride(2);
  if (!heads_inside) return empty_dense(sizes, like.options(), allocator);
  const std::array<c10::SymInt, 4> in_memory = {sizes[0], sizes[2], sizes[1], sizes[3]};
  return empty_dense(in_memory, like.options(), allocator).transpose(1, 2);
}

}  // namespace

at::ScalarType weight_type(at::ScalarType element) { return element == at::kDouble ? at::kDouble : at::kFloat; }

void check_attention_inputs(const AttentionInputs& inputs) {
  const auto& [q, k, v, weights, causal, lengths, scale, start] = inputs;
  check_tensors("hkt::attention", q, k, v, weights);
  for (size_t level = 0; level < k.size(); ++level) check_key_rows(k[level], level, v);
  check_query_rows(q, start, v.sym_size(2));
  if (lengths) check_per_sequence(*lengths, {"hkt::attention", "lengths"}, v);
}

void check_extend_inputs(const ExtendInputs& inputs) {
  const auto& [q, k, v, weights, ends, scale, coarse, refresh] = inputs;
  const char* op = coarse ? "hkt::decode" : "hkt::attention_extend";
  check_tensors(op, q, k, v, weights);
  check_per_sequence(ends, {op, "ends"}, v);
  const c10::SymInt queries = q[0].sym_size(2);
  for (size_t level = 1; level < q.size(); ++level) {
    const c10::SymInt least = level_rows(queries, level);
    TORCH_CHECK(q[level].sym_size(2) >= least, op, ": q[", level, "] has ", q[level].sym_size(2),
                " rows, must have at least ", least, " for ", queries, " positions in steps of ", int64_t{1} << level);
  }
  if (!coarse) return;
  TORCH_CHECK(queries == 1, op, ": q[0] has ", queries, " rows, must have 1");
  TORCH_CHECK(coarse->size() + 1 == q.size(), op, ": coarse has ", coarse->size(), " levels, must have ", q.size() - 1,
              ", one for each of q but the first");
  for (size_t i = 0; i < coarse->size(); ++i) {
    const at::Tensor& rows = (*coarse)[i];
    const Name name{op, "coarse", i};
    const c10::SymInt least = level_rows(v.sym_size(2), i + 1);
    check_kind(rows, name, 3, v);
    TORCH_CHECK(rows.scalar_type() == weight_type(v.scalar_type()), name, " is ", rows.scalar_type(), ", must be ",
                weight_type(v.scalar_type()));
    TORCH_CHECK(rows.sym_size(0) == v.sym_size(0) && rows.sym_size(1) == q[0].sym_size(1) && rows.sym_size(2) >= least,
                name, " is ", rows.sym_sizes(), ", must be [batch, heads, rows] = [", v.sym_size(0), ", ",
                q[0].sym_size(1), ", at least ", least, "]");
    TORCH_CHECK(rows.sym_stride(2) == 1, name, " has a last stride of ", rows.sym_stride(2), ", must have 1");
    for (const int64_t dim : {0, 1})
      TORCH_CHECK(rows.sym_size(dim) <= 1 || rows.sym_stride(dim) >= least, name, " has strides ", rows.sym_strides(),
                  ", but is written: its rows must not overlap");
  }
}

int64_t cache_capacity(const ExtendInputs& inputs) {
  int64_t capacity = inputs.v.size(2);
  for (size_t level = 0; level < inputs.k.size(); ++level)
    capacity = std::min(capacity, inputs.k[level].size(2) << level);
  return capacity;
}

namespace {

// [B, H, rows of q, Dv]
std::array<c10::SymInt, 4> output_sizes(at::TensorList q, const at::Tensor& v) {
  return {q[0].sym_size(0), q[0].sym_size(1), q[0].sym_size(2), v.sym_size(3)};
}

}  // namespace

void check_attention_gradient(const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse,
                              const AttentionInputs& inputs, const at::Tensor& out, const at::Tensor& lse) {
  const auto sizes = output_sizes(inputs.q, inputs.v);
  const auto check = [&](const at::Tensor& tensor, const char* name, c10::SymIntArrayRef expected,
                         at::ScalarType type) {
    check_kind(tensor, {"hkt::attention", name}, static_cast<int64_t>(expected.size()), inputs.v);
    TORCH_CHECK(tensor.sym_sizes() == expected && tensor.scalar_type() == type, "hkt::attention: ", name, " is ",
                tensor.scalar_type(), " ", tensor.sym_sizes(), ", must be ", type, " ", expected);
  };
  const auto type = inputs.v.scalar_type();
  check(grad_out, "grad_out", sizes, type);
  check(out, "out", sizes, type);
  check(lse, "lse", c10::SymIntArrayRef(sizes).slice(0, 3), weight_type(type));
  if (grad_lse) check(*grad_lse, "grad_lse", c10::SymIntArrayRef(sizes).slice(0, 3), weight_type(type));
}

AttentionOutput empty_attention_output(at::TensorList q, const at::Tensor& v, c10::Allocator* allocator) {
  const auto sizes = output_sizes(q, v);
  const auto lse_options = v.options().dtype(weight_type(v.scalar_type()));
  return {empty_ordered_like(v, sizes, q[0], allocator),
          empty_dense(c10::SymIntArrayRef(sizes).slice(0, 3), lse_options, allocator)};
}

AttentionGradients empty_attention_gradients(const AttentionInputs& inputs, c10::Allocator* allocator) {
  std::vector<at::Tensor> grad_q;
  std::vector<at::Tensor> grad_k;
  for (const at::Tensor& level : inputs.q) grad_q.push_back(empty_dense_like(level, allocator));
  for (const at::Tensor& level : inputs.k) grad_k.push_back(empty_dense_like(level, allocator));
  const auto options = inputs.weights.options().dtype(weight_type(inputs.v.scalar_type()));
  return {std::move(grad_q), std::move(grad_k), empty_dense_like(inputs.v, allocator),
          empty_dense(inputs.weights.sym_sizes(), options, allocator)};
}

AttentionGradients per_head_gradients(const AttentionInputs& inputs, const AttentionGradients& gradients,
                                      c10::Allocator* allocator) {
  if (!inputs.is_grouped()) return gradients;
  auto per_head = gradients;
  const auto widen = [&](at::Tensor& gradient) {
    const std::array<c10::SymInt, 4> sizes = {gradient.sym_size(0), inputs.q[0].sym_size(1), gradient.sym_size(2),
                                              gradient.sym_size(3)};
    gradient = empty_ordered_like(gradient, sizes, gradient, allocator);
  };
  for (at::Tensor& level : std::get<1>(per_head)) widen(level);
  widen(std::get<2>(per_head));
  return per_head;
}

void sum_over_groups(const AttentionGradients& per_head, const AttentionGradients& gradients) {
  // Head by head: the order of at::sum depends on the number of threads.
  const auto sum = [](const at::Tensor& parts, const at::Tensor& total) {
    if (parts.is_same(total)) return;
    const auto heads = parts.unflatten(1, {total.size(1), -1}).unbind(2);
    auto in_order = heads[0].to(weight_type(parts.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
    for (size_t head = 1; head < heads.size(); ++head) in_order.add_(heads[head]);
    total.copy_(in_order);
  };
  for (size_t level = 0; level < std::get<1>(gradients).size(); ++level)
    sum(std::get<1>(per_head)[level], std::get<1>(gradients)[level]);
  sum(std::get<2>(per_head), std::get<2>(gradients));
}

void set_to_zero(const AttentionGradients& gradients) {
  const auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  for (const auto* levels : {&grad_q, &grad_k})
    for (const at::Tensor& level : *levels) level.zero_();
  grad_v.zero_();
  grad_weights.zero_();
}

AttentionGradients in_types_of_inputs(AttentionGradients gradients, const at::Tensor& weights) {
  auto& grad_weights = std::get<3>(gradients);
  grad_weights = grad_weights.to(weights.scalar_type());
  return gradients;
}

void count_as_written(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) torch::autograd::impl::bump_version(tensor);
}

}  // namespace hkt::ops
