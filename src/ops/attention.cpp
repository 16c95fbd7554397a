// SPDX-License-Identifier: Apache-2.0
// The operator hkt::attention: schema, autograd, Meta kernel and autocast.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <utility>

#include "attention_inputs.h"
#include "hkt/ops.h"

namespace hkt {
namespace ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

TORCH_LIBRARY(hkt, m) {
  m.def(
      "attention(Tensor[] q, Tensor[] k, Tensor v, Tensor weights, bool causal=False, Tensor? lengths=None, "
      "float? scale=None, SymInt start=0) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor[] q, Tensor[] k, Tensor v, Tensor weights, "
      "Tensor out, Tensor lse, bool causal, Tensor? lengths, float? scale, SymInt start) -> (Tensor[] grad_q, "
      "Tensor[] grad_k, Tensor grad_v, Tensor grad_weights)");
}

AttentionOutput call_attention(const AttentionInputs& inputs) {
  using Signature = AttentionOutput(at::TensorList, at::TensorList, const at::Tensor&, const at::Tensor&, bool,
                                    const OptionalTensor&, std::optional<double>, c10::SymInt);
  static const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("hkt::attention", "").typed<Signature>();
  return handle.call(inputs.q, inputs.k, inputs.v, inputs.weights, inputs.causal, inputs.lengths, inputs.scale,
                     inputs.start);
}

AttentionGradients call_attention_backward(const at::Tensor& grad_out, const OptionalTensor& grad_lse,
                                           const AttentionInputs& inputs, const at::Tensor& out,
                                           const at::Tensor& lse) {
  using Signature = AttentionGradients(const at::Tensor&, const OptionalTensor&, at::TensorList, at::TensorList,
                                       const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                                       const OptionalTensor&, std::optional<double>, c10::SymInt);
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("hkt::attention_backward", "").typed<Signature>();
  return handle.call(grad_out, grad_lse, inputs.q, inputs.k, inputs.v, inputs.weights, out, lse, inputs.causal,
                     inputs.lengths, inputs.scale, inputs.start);
}

variable_list flatten(const AttentionGradients& gradients) {
  const auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  variable_list flat(grad_q.begin(), grad_q.end());
  flat.insert(flat.end(), grad_k.begin(), grad_k.end());
  flat.push_back(grad_v);
  flat.push_back(grad_weights);
  return flat;
}

OptionalTensor if_defined(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

// Saved for backward: q, k, v, weights, out, lse, lengths (undefined if absent).
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList q, at::TensorList k, const at::Tensor& v,
                               const at::Tensor& weights, bool causal, const OptionalTensor& lengths,
                               std::optional<double> scale, c10::SymInt start) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->saved_data["start"] = start;
    auto [out, lse] = call_attention({q, k, v, weights, causal, lengths, scale, std::move(start)});
    variable_list saved(q.begin(), q.end());
    saved.insert(saved.end(), k.begin(), k.end());
    for (const at::Tensor& tensor : {v, weights, out, lse, lengths.value_or(at::Tensor())}) saved.push_back(tensor);
    context->save_for_backward(std::move(saved));
    context->saved_data["levels"] = static_cast<int64_t>(q.size());
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    context->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto levels = context->saved_data["levels"].toInt();
    // One gradient per tensor of q and k, then v, weights, causal, lengths, scale, start.
    variable_list result(2 * levels + 6);
    const at::Tensor &grad_out = grads[0], &grad_lse = grads[1];
    if (!grad_out.defined() && !grad_lse.defined()) return result;
    const auto saved = context->get_saved_variables();
    const at::Tensor* rest = saved.data() + 2 * levels;
    const at::Tensor &out = rest[2], &lse = rest[3];
    const OptionalTensor lengths = if_defined(rest[4]);
    const AttentionInputs inputs{at::TensorList(saved.data(), levels),
                                 at::TensorList(saved.data() + levels, levels),
                                 rest[0],
                                 rest[1],
                                 context->saved_data["causal"].toBool(),
                                 lengths,
                                 context->saved_data["scale"].toOptional<double>(),
                                 context->saved_data["start"].toSymInt()};
    const auto flat = flatten(call_attention_backward(grad_out.defined() ? grad_out : at::zeros_like(out),
                                                      if_defined(grad_lse), inputs, out, lse));
    std::copy(flat.begin(), flat.end(), result.begin());
    return result;
  }
};

AttentionOutput attention_autograd(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                                   bool causal, const OptionalTensor& lengths, std::optional<double> scale,
                                   c10::SymInt start) {
  const auto outputs = AttentionFunction::apply(q, k, v, weights, causal, lengths, scale, std::move(start));
  return {outputs[0], outputs[1]};
}

// The backward pass runs under create_graph, but has no derivative: differentiating its results throws.
struct AttentionBackwardFunction : torch::autograd::Function<AttentionBackwardFunction> {
  static variable_list forward(AutogradContext*, const at::Tensor& grad_out, const OptionalTensor& grad_lse,
                               at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               const at::Tensor& out, const at::Tensor& lse, bool causal, const OptionalTensor& lengths,
                               std::optional<double> scale, c10::SymInt start) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return flatten(call_attention_backward(grad_out, grad_lse,
                                           {q, k, v, weights, causal, lengths, scale, std::move(start)}, out, lse));
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "hkt::attention: the second derivative is not implemented "
                                "(hkt::reference::attention has one)");
  }
};

AttentionGradients attention_backward_autograd(const at::Tensor& grad_out, const OptionalTensor& grad_lse,
                                               at::TensorList q, at::TensorList k, const at::Tensor& v,
                                               const at::Tensor& weights, const at::Tensor& out, const at::Tensor& lse,
                                               bool causal, const OptionalTensor& lengths, std::optional<double> scale,
                                               c10::SymInt start) {
  const auto flat = AttentionBackwardFunction::apply(grad_out, grad_lse, q, k, v, weights, out, lse, causal, lengths,
                                                     scale, std::move(start));
  const auto second = flat.begin() + static_cast<std::ptrdiff_t>(q.size());
  const auto end = second + static_cast<std::ptrdiff_t>(k.size());
  return {{flat.begin(), second}, {second, end}, end[0], end[1]};
}

AttentionOutput attention_meta(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               bool causal, const OptionalTensor& lengths, std::optional<double> scale,
                               c10::SymInt start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, std::move(start)};
  check_attention_inputs(inputs);
  return empty_attention_output(q, v);
}

AttentionGradients attention_backward_meta(const at::Tensor& grad_out, const OptionalTensor& grad_lse, at::TensorList q,
                                           at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                                           const at::Tensor& out, const at::Tensor& lse, bool causal,
                                           const OptionalTensor& lengths, std::optional<double> scale,
                                           c10::SymInt start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, std::move(start)};
  check_attention_inputs(inputs);
  check_attention_gradient(grad_out, grad_lse, inputs, out, lse);
  return in_types_of_inputs(empty_attention_gradients(inputs), weights);
}

// q, k and v are cast to the autocast dtype, the weights to float32.
template <c10::DeviceType device>
AttentionOutput attention_autocast(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                                   bool causal, const OptionalTensor& lengths, std::optional<double> scale,
                                   c10::SymInt start) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}));
  const auto type = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const auto& tensors) { return at::autocast::cached_cast(type, tensors, device); };
  const auto cast_q = cast(q);
  const auto cast_k = cast(k);
  return call_attention({cast_q, cast_k, cast(v), at::autocast::cached_cast(at::kFloat, weights, device), causal,
                         lengths, scale, std::move(start)});
}

TORCH_LIBRARY_IMPL(hkt, Autograd, m) {
  m.impl("attention", attention_autograd);
  m.impl("attention_backward", attention_backward_autograd);
}
TORCH_LIBRARY_IMPL(hkt, Meta, m) {
  m.impl("attention", attention_meta);
  m.impl("attention_backward", attention_backward_meta);
}
TORCH_LIBRARY_IMPL(hkt, AutocastCPU, m) { m.impl("attention", attention_autocast<c10::kCPU>); }
TORCH_LIBRARY_IMPL(hkt, AutocastCUDA, m) { m.impl("attention", attention_autocast<c10::kCUDA>); }

}  // namespace
}  // namespace ops

std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, bool causal,
                                             const std::optional<at::Tensor>& lengths, std::optional<double> scale,
                                             int64_t start) {
  return ops::call_attention({q, k, v, weights, causal, lengths, scale, start});
}

}  // namespace hkt
