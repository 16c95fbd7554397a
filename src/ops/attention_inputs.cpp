// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of hkt::attention, and allocation of its results.
#include "attention_inputs.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/strides.h>

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
  const char* text;
  std::optional<size_t> level = {};
};
std::ostream& operator<<(std::ostream& out, const Name& name) {
  out << name.text;
  return name.level ? out << "[" << *name.level << "]" : out;
}

void check_kind(const at::Tensor& tensor, const Name& name, int64_t rank, const at::Tensor& v) {
  TORCH_CHECK(tensor.defined(), "hkt::attention: ", name, " is missing");
  TORCH_CHECK(tensor.layout() == at::kStrided, "hkt::attention: ", name, " is ", tensor.layout(),
              "; only dense (strided) tensors are allowed");
  TORCH_CHECK(tensor.dim() == rank, "hkt::attention: ", name, " has ", tensor.dim(), " dimensions, must have ", rank);
  TORCH_CHECK(tensor.device() == v.device(), "hkt::attention: ", name, " is on ", tensor.device(), ", v is on ",
              v.device(), "; all tensors must be on the same device");
}

void check_level(const at::Tensor& tensor, const char* list, size_t level, const at::Tensor& v,
                 const c10::SymInt& width) {
  const Name name{list, level};
  check_kind(tensor, name, 4, v);
  TORCH_CHECK(tensor.scalar_type() == v.scalar_type(), "hkt::attention: ", name, " is ", tensor.scalar_type(),
              ", v is ", v.scalar_type(), "; q, k and v must have the same dtype");
  const c10::SymInt step = int64_t{1} << level;
  const c10::SymInt rows = (v.sym_size(2) + step - 1) / step;
  TORCH_CHECK(tensor.sym_size(0) == v.sym_size(0), "hkt::attention: ", name, " has batch size ", tensor.sym_size(0),
              ", v has ", v.sym_size(0));
  TORCH_CHECK(tensor.sym_size(1) == v.sym_size(1), "hkt::attention: ", name, " has ", tensor.sym_size(1),
              " heads, v has ", v.sym_size(1));
  TORCH_CHECK(tensor.sym_size(2) == rows, "hkt::attention: ", name, " has length ", tensor.sym_size(2), ", must be ",
              rows, " = ceil(", v.sym_size(2), " / ", step, "), the length of v halved ", level, " times");
  TORCH_CHECK(tensor.sym_size(3) == width, "hkt::attention: ", name, " has width ", tensor.sym_size(3), ", q[0] has ",
              width);
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

}  // namespace

at::ScalarType weight_type(at::ScalarType element) { return element == at::kDouble ? at::kDouble : at::kFloat; }

void check_attention_inputs(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const std::optional<at::Tensor>& lengths) {
  const auto levels = q.size();
  TORCH_CHECK(levels >= 1 && levels <= kernels::max_levels, "hkt::attention: q has ", levels,
              " levels, must have 1 to ", kernels::max_levels);
  TORCH_CHECK(k.size() == levels, "hkt::attention: k has ", k.size(), " levels, q has ", levels);
  check_kind(v, {"v"}, 4, v);
  TORCH_CHECK(is_supported(v.scalar_type()), "hkt::attention: v is ", v.scalar_type(),
              ", must be float32, float64, bfloat16 or float16");
  check_kind(q[0], {"q[0]"}, 4, v);
  const c10::SymInt width = q[0].sym_size(3);
  TORCH_CHECK(width >= 1 && width <= kernels::max_width, "hkt::attention: q[0] has width ", width, ", must be 1 to ",
              kernels::max_width);
  TORCH_CHECK(v.sym_size(3) >= 1 && v.sym_size(3) <= kernels::max_width, "hkt::attention: v has width ", v.sym_size(3),
              ", must be 1 to ", kernels::max_width);
  for (size_t level = 0; level < levels; ++level) {
    check_level(q[level], "q", level, v, width);
    check_level(k[level], "k", level, v, width);
  }
  check_kind(weights, {"weights"}, 2, v);
  TORCH_CHECK(weights.sym_size(0) == v.sym_size(1) && weights.sym_size(1) == static_cast<int64_t>(levels),
              "hkt::attention: weights is ", weights.sym_sizes(), ", must be [heads, levels] = [", v.sym_size(1), ", ",
              levels, "]");
  TORCH_CHECK(is_supported(weights.scalar_type()), "hkt::attention: weights is ", weights.scalar_type(),
              ", must be float32, float64, bfloat16 or float16");
  if (lengths) {
    check_kind(*lengths, {"lengths"}, 1, v);
    TORCH_CHECK(lengths->scalar_type() == at::kLong || lengths->scalar_type() == at::kInt,
                "hkt::attention: lengths is ", lengths->scalar_type(), ", must be int64 or int32");
    TORCH_CHECK(lengths->sym_size(0) == v.sym_size(0), "hkt::attention: lengths has ", lengths->sym_size(0),
                " entries, must have one per sequence, ", v.sym_size(0));
  }
}

void check_attention_gradient(const at::Tensor& grad_out, const at::Tensor& v, const at::Tensor& out,
                              const at::Tensor& lse) {
  for (const auto& [tensor, name] : {std::pair{grad_out, "grad_out"}, std::pair{out, "out"}}) {
    check_kind(tensor, {name}, 4, v);
    TORCH_CHECK(tensor.sym_sizes() == v.sym_sizes() && tensor.scalar_type() == v.scalar_type(),
                "hkt::attention: ", name, " is ", tensor.scalar_type(), " ", tensor.sym_sizes(), ", must match v, ",
                v.scalar_type(), " ", v.sym_sizes());
  }
  check_kind(lse, {"lse"}, 3, v);
  TORCH_CHECK(lse.sym_sizes() == v.sym_sizes().slice(0, 3) && lse.scalar_type() == weight_type(v.scalar_type()),
              "hkt::attention: lse is ", lse.scalar_type(), " ", lse.sym_sizes(), ", must be ",
              weight_type(v.scalar_type()), " ", v.sym_sizes().slice(0, 3));
}

AttentionOutput empty_attention_output(const at::Tensor& v, c10::Allocator* allocator) {
  const auto lse_options = v.options().dtype(weight_type(v.scalar_type()));
  return {empty_dense_like(v, allocator), empty_dense(v.sym_sizes().slice(0, 3), lse_options, allocator)};
}

AttentionGradients empty_attention_gradients(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, c10::Allocator* allocator) {
  std::vector<at::Tensor> grad_q;
  std::vector<at::Tensor> grad_k;
  for (const at::Tensor& level : q) grad_q.push_back(empty_dense_like(level, allocator));
  for (const at::Tensor& level : k) grad_k.push_back(empty_dense_like(level, allocator));
  return {std::move(grad_q), std::move(grad_k), empty_dense_like(v, allocator),
          empty_dense(weights.sym_sizes(), weights.options().dtype(weight_type(v.scalar_type())), allocator)};
}

AttentionGradients in_types_of_inputs(AttentionGradients gradients, const at::Tensor& weights) {
  auto& grad_weights = std::get<3>(gradients);
  grad_weights = grad_weights.to(weights.scalar_type());
  return gradients;
}

}  // namespace hkt::ops
