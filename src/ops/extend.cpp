// SPDX-License-Identifier: Apache-2.0
// The operators hkt::attention_extend and hkt::decode, which work on caches: schemas, Meta kernels and autocast. They are for
// inference: differentiating their results throws.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "attention_inputs.h"
#include "hkt/ops.h"

namespace hkt {
namespace ops {
namespace {

TORCH_LIBRARY_FRAGMENT(hkt, m) {
  m.def(
      "attention_extend(Tensor[] q, Tensor[] k, Tensor v, Tensor weights, Tensor ends, float? scale=None) "
      "-> (Tensor out, Tensor lse)");
  m.def(
      "decode(Tensor[] q, Tensor[] k, Tensor v, Tensor weights, Tensor ends, Tensor(a!)[] coarse, float? scale=None, "
      "bool refresh=False) -> (Tensor out, Tensor lse)");
}

AttentionOutput call_extend(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, std::optional<double> scale) {
  using Signature = AttentionOutput(at::TensorList, at::TensorList, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, std::optional<double>);
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("hkt::attention_extend", "").typed<Signature>();
  return handle.call(q, k, v, weights, ends, scale);
}

AttentionOutput call_decode(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, at::TensorList coarse, std::optional<double> scale, bool refresh) {
  using Signature = AttentionOutput(at::TensorList, at::TensorList, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, at::TensorList, std::optional<double>, bool);
  static const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("hkt::decode", "").typed<Signature>();
  return handle.call(q, k, v, weights, ends, coarse, scale, refresh);
}

AttentionOutput extend_meta(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, std::optional<double> scale) {
  check_extend_inputs({q, k, v, weights, ends, scale});
  return empty_attention_output(q, v);
}

AttentionOutput decode_meta(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, at::TensorList coarse, std::optional<double> scale, bool refresh) {
  check_extend_inputs({q, k, v, weights, ends, scale, coarse, refresh});
  return empty_attention_output(q, v);
}

// q, k and v are cast to the autocast dtype, the weights to float32.
template <c10::DeviceType device, class Call>
AttentionOutput with_autocast(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                              const Call& call) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}));
  const auto type = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const auto& tensors) { return at::autocast::cached_cast(type, tensors, device); };
  return call(cast(q), cast(k), cast(v), at::autocast::cached_cast(at::kFloat, weights, device));
}

template <c10::DeviceType device>
AttentionOutput extend_autocast(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                                const at::Tensor& ends, std::optional<double> scale) {
  return with_autocast<device>(q, k, v, weights,
                               [&](const auto&... cast) { return call_extend(cast..., ends, scale); });
}

template <c10::DeviceType device>
AttentionOutput decode_autocast(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                                const at::Tensor& ends, at::TensorList coarse, std::optional<double> scale,
                                bool refresh) {
  return with_autocast<device>(q, k, v, weights,
                               [&](const auto&... cast) { return call_decode(cast..., ends, coarse, scale, refresh); });
}

TORCH_LIBRARY_IMPL(hkt, Autograd, m) {
  m.impl("attention_extend", torch::autograd::autogradNotImplementedFallback());
  m.impl("decode", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(hkt, Meta, m) {
  m.impl("attention_extend", extend_meta);
  m.impl("decode", decode_meta);
}
TORCH_LIBRARY_IMPL(hkt, AutocastCPU, m) {
  m.impl("attention_extend", extend_autocast<c10::kCPU>);
  m.impl("decode", decode_autocast<c10::kCPU>);
}
TORCH_LIBRARY_IMPL(hkt, AutocastCUDA, m) {
  m.impl("attention_extend", extend_autocast<c10::kCUDA>);
  m.impl("decode", decode_autocast<c10::kCUDA>);
}

}  // namespace
}  // namespace ops

std::tuple<at::Tensor, at::Tensor> attention_extend(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                    const at::Tensor& weights, const at::Tensor& ends,
                                                    std::optional<double> scale) {
  return ops::call_extend(q, k, v, weights, ends, scale);
}

std::tuple<at::Tensor, at::Tensor> decode(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                          const at::Tensor& weights, const at::Tensor& ends, at::TensorList coarse,
                                          std::optional<double> scale, bool refresh) {
  return ops::call_decode(q, k, v, weights, ends, coarse, scale, refresh);
}

}  // namespace hkt
