// SPDX-License-Identifier: Apache-2.0
// The operator hkt::downsample: causal downsampling by two, y[m] = Σ_r x[2m − r] · weight[r].
// Rows 2m − 1 and 2m of x are adjacent in memory, so two taps of a dense filter are one matrix product on a view of x.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/library.h>

#include "hkt/ops.h"

#ifdef HKT_WITH_CUDA
#include "ops/depthwise_cuda.h"
#endif

namespace hkt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_inputs(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() == 3, "hkt::downsample: x is ", x.sym_sizes(), ", must be [batch, length, width]");
  const auto type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf,
              "hkt::downsample: x is ", type, ", must be float32, float64, bfloat16 or float16");
  TORCH_CHECK(weight.scalar_type() == type, "hkt::downsample: weight is ", weight.scalar_type(), ", must be ", type,
              " like x");
  TORCH_CHECK(weight.device() == x.device(), "hkt::downsample: weight is on ", weight.device(), ", must be on ",
              x.device(), " like x");
  const auto width = x.sym_size(2);
  const bool fits = (weight.dim() == 2 || weight.dim() == 3) && weight.sym_size(0) >= 1 &&
                    weight.sym_size(1) == width && (weight.dim() == 2 || weight.sym_size(2) == width);
  TORCH_CHECK(fits, "hkt::downsample: weight is ", weight.sym_sizes(), ", must be [taps, ", width, ", ", width,
              "] (dense) or [taps, ", width, "] (depthwise) with at least one tap");
}

void check_grad(const at::Tensor& grad, const at::Tensor& x) {
  const c10::SymDimVector expected{x.sym_size(0), (x.sym_size(1) + 1) / 2, x.sym_size(2)};
  TORCH_CHECK(grad.sym_sizes().equals(expected), "hkt::downsample: grad is ", grad.sym_sizes(), ", must be ",
              c10::SymIntArrayRef(expected));
  TORCH_CHECK(grad.scalar_type() == x.scalar_type() && grad.device() == x.device(), "hkt::downsample: grad is ",
              grad.scalar_type(), " on ", grad.device(), ", must be ", x.scalar_type(), " on ", x.device(), " like x");
}

// x, copied unless its rows follow each other without gaps, as the views below need. Sequences may be any distance apart.
at::Tensor dense_rows(const at::Tensor& x) {
  const bool dense = x.stride(2) == 1 && x.stride(1) == x.size(2) && (x.size(0) == 1 || x.stride(0) > 0);
  return dense ? x : x.contiguous();
}

// The first `count` pairs (x[2m − 1], x[2m]), m = 1, 2, …, as rows of twice the width.
at::Tensor pairs(const at::Tensor& x, int64_t count) {
  const int64_t width = x.size(2);
  return x.as_strided({x.size(0), count, 2 * width}, {x.stride(0), 2 * width, 1}, x.storage_offset() + width);
}

// The inputs of tap r, x[2m − r] for all m with 2m ≥ r, and the rows of y (or its gradient) that it contributes to.
int64_t first_row(int64_t tap) { return (tap + 1) / 2; }
at::Tensor inputs_of(int64_t tap, const at::Tensor& x, int64_t rows) {
  const int64_t count = rows - first_row(tap);
  return x.slice(1, tap % 2, tap % 2 + 2 * count - 1, 2);
}
at::Tensor outputs_of(int64_t tap, const at::Tensor& y) { return y.slice(1, first_row(tap)); }

// [weight[2p + 1]; weight[2p]], the factor of pairs().
at::Tensor stacked_taps(const at::Tensor& weight, int64_t pair) {
  return weight.narrow(0, 2 * pair, 2).flip(0).flatten(0, 1);
}

bool is_one_matrix(const at::Tensor& a) { return a.size(0) == 1 || a.stride(0) == a.size(1) * a.stride(1); }
at::Tensor as_one_matrix(const at::Tensor& a) {
  return a.as_strided({a.size(0) * a.size(1), a.size(2)}, {a.stride(1), 1});
}

// out = a · factor, or out += a · factor, for each matrix of a batch; one product if the strides allow it.
void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& factor, bool add) {
  if (out.numel() == 0) return;
  if (is_one_matrix(out) && is_one_matrix(a)) {
    out = as_one_matrix(out);
    add ? out.addmm_(as_one_matrix(a), factor) : at::mm_out(out, as_one_matrix(a), factor);
  } else {
    const auto factors = factor.expand({a.size(0), factor.size(0), factor.size(1)});
    add ? out.baddbmm_(a, factors) : at::bmm_out(out, a, factors);
  }
}

// A batch of sequences as one long sequence. With an even length its pairs() are those of each sequence, and between them
// pairs across the boundary of two sequences, whose results the callers overwrite.
at::Tensor joined(const at::Tensor& x) { return x.view({1, x.size(0) * x.size(1), x.size(2)}); }
bool can_join(const at::Tensor& x) { return x.size(1) % 2 == 0 && x.is_contiguous(); }

// Sequences of odd length become one long sequence with a padding row before each. That copy costs less than many small
// products.
bool needs_padding_row(const at::Tensor& x) { return x.size(1) % 2 == 1 && x.size(0) > 1; }

at::Tensor dense_forward(const at::Tensor& x_any, const at::Tensor& weight) {
  const auto x = dense_rows(x_any);
  const int64_t rows = (x.size(1) + 1) / 2, taps = weight.size(0);
  auto y = at::empty({x.size(0), rows, x.size(2)}, x.options());
  if (y.numel() == 0) return y;
  for (int64_t pair = 0; pair < rows && 2 * pair < taps; ++pair) {
    const bool add = pair > 0;
    if (2 * pair + 1 == taps) {
      multiply(outputs_of(2 * pair, y), inputs_of(2 * pair, x, rows), weight[2 * pair], add);
      continue;
    }
    const auto factor = stacked_taps(weight, pair);
    if (!add && needs_padding_row(x)) {
      const auto padded = at::constant_pad_nd(x, {0, 0, 1, 0});  // x[−1] = 0
      multiply(y, padded.view({x.size(0), rows, 2 * x.size(2)}), factor, add);
      continue;
    }
    if (!add && can_join(x)) {
      const int64_t count = x.size(0) * rows - 1;
      multiply(joined(y).narrow(1, 1, count), pairs(joined(x), count), factor, add);
    } else {
      const int64_t count = rows - pair - 1;
      multiply(y.narrow(1, pair + 1, count), pairs(x, count), factor, add);
    }
    multiply(y.narrow(1, pair, 1), x.narrow(1, 0, 1), weight[2 * pair], add);
  }
  return y;
}

// grad_x is written through the same views as x is read above.
at::Tensor dense_backward_x(const at::Tensor& grad, const at::Tensor& weight, int64_t length) {
  const int64_t batch = grad.size(0), rows = grad.size(1), taps = weight.size(0);
  auto grad_x = at::empty({batch, length, grad.size(2)}, grad.options());
  if (taps == 1) grad_x.zero_();
  for (int64_t pair = 0; pair < rows && 2 * pair < taps; ++pair) {
    const bool add = pair > 0;
    const auto even_factor = weight[2 * pair].t();
    if (2 * pair + 1 == taps) {
      multiply(inputs_of(2 * pair, grad_x, rows), outputs_of(2 * pair, grad), even_factor, add);
      continue;
    }
    const auto factor = stacked_taps(weight, pair).t();
    if (!add && needs_padding_row(grad_x)) {
      const int64_t width = grad.size(2);
      const auto padded = at::empty({batch, rows, 2 * width}, grad.options());
      multiply(padded, grad, factor, add);
      grad_x.copy_(padded.view({batch, length + 1, width}).narrow(1, 1, length));
      continue;
    }
    if (!add && can_join(grad_x)) {
      const int64_t count = batch * rows - 1;
      multiply(pairs(joined(grad_x), count), joined(grad).narrow(1, 1, count), factor, add);
    } else {
      const int64_t count = rows - pair - 1;
      multiply(pairs(grad_x, count), grad.narrow(1, pair + 1, count), factor, add);
    }
    if (!add && length % 2 == 0) grad_x.select(1, length - 1).zero_();  // no output uses this row through taps 0 and 1
    multiply(grad_x.narrow(1, 0, 1), grad.narrow(1, pair, 1), even_factor, add);
  }
  return grad_x;
}

// Σ over all rows of aᵀ · grad. Gathering the rows of a batch is a copy, but cheaper than summing one product per sequence.
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& grad) {
  const int64_t rows = a.size(0) * a.size(1);
  return at::mm(a.reshape({rows, a.size(2)}).t(), grad.reshape({rows, grad.size(2)}));
}

at::Tensor dense_backward_weight(const at::Tensor& grad, const at::Tensor& x_any, const at::Tensor& weight) {
  const auto x = dense_rows(x_any);
  const int64_t rows = grad.size(1), taps = weight.size(0), width = x.size(2);
  auto grad_weight = at::zeros(weight.sizes(), weight.options());
  for (int64_t pair = 0; pair < rows && 2 * pair < taps; ++pair) {
    auto even = grad_weight[2 * pair];
    if (2 * pair + 1 == taps) {
      even.copy_(transposed_product(inputs_of(2 * pair, x, rows), outputs_of(2 * pair, grad)));
      continue;
    }
    const int64_t count = rows - pair - 1;
    const auto both = transposed_product(pairs(x, count), grad.narrow(1, pair + 1, count));
    grad_weight[2 * pair + 1].copy_(both.narrow(0, 0, width));
    at::addmm_out(even, both.narrow(0, width, width), x.select(1, 0).t(), grad.select(1, pair));
  }
  return grad_weight;
}

std::tuple<at::Tensor, at::Tensor> dense_backward(const at::Tensor& grad_any, const at::Tensor& x,
                                                  const at::Tensor& weight) {
  if (grad_any.numel() == 0) return {at::zeros(x.sizes(), x.options()), at::zeros(weight.sizes(), weight.options())};
  const auto grad = grad_any.contiguous();
  return {dense_backward_x(grad, weight, x.size(1)), dense_backward_weight(grad, x, weight)};
}

at::Tensor depthwise_forward(const at::Tensor& x, const at::Tensor& weight) {
#ifdef HKT_WITH_CUDA
  if (ops::depthwise_cuda_takes(x)) return ops::downsample_cuda(x, weight);
#endif
  const int64_t rows = (x.size(1) + 1) / 2;
  auto y = at::empty({x.size(0), rows, x.size(2)}, x.options());
  at::mul_out(y, x.slice(1, 0, x.size(1), 2), weight[0]);
  for (int64_t tap = 1; tap < weight.size(0) && first_row(tap) < rows; ++tap) {
    outputs_of(tap, y).addcmul_(inputs_of(tap, x, rows), weight[tap]);
  }
  return y;
}

std::tuple<at::Tensor, at::Tensor> depthwise_backward(const at::Tensor& grad, const at::Tensor& x,
                                                      const at::Tensor& weight) {
#ifdef HKT_WITH_CUDA
  if (ops::depthwise_cuda_takes(x)) return ops::downsample_backward_cuda(grad, x, weight);
#endif
  const int64_t rows = grad.size(1);
  auto grad_x = at::zeros(x.sizes(), x.options());
  auto grad_weight = at::zeros(weight.sizes(), weight.options());
  for (int64_t tap = 0; tap < weight.size(0) && first_row(tap) < rows; ++tap) {
    const auto outputs = outputs_of(tap, grad);
    inputs_of(tap, grad_x, rows).addcmul_(outputs, weight[tap]);
    auto out = grad_weight[tap];
    at::sum_out(out, inputs_of(tap, x, rows) * outputs, at::IntArrayRef{0, 1});
  }
  return {grad_x, grad_weight};
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight) {
  check_inputs(x, weight);
  return weight.dim() == 3 ? dense_forward(x, weight) : depthwise_forward(x, weight);
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight) {
  check_inputs(x, weight);
  check_grad(grad, x);
  return weight.dim() == 3 ? dense_backward(grad, x, weight) : depthwise_backward(grad, x, weight);
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor& weight) {
  check_inputs(x, weight);
  return at::empty_symint({x.sym_size(0), (x.sym_size(1) + 1) / 2, x.sym_size(2)}, x.options());
}

std::tuple<at::Tensor, at::Tensor> backward_meta(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& weight) {
  check_inputs(x, weight);
  check_grad(grad, x);
  return {at::empty_symint(x.sym_sizes(), x.options()), at::empty_symint(weight.sym_sizes(), weight.options())};
}

at::Tensor call_forward(const at::Tensor& x, const at::Tensor& weight) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("hkt::downsample", "").typed<decltype(forward)>();
  return op.call(x, weight);
}

std::tuple<at::Tensor, at::Tensor> call_backward(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& weight) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("hkt::downsample_backward", "").typed<decltype(backward)>();
  return op.call(grad, x, weight);
}

struct Backward : torch::autograd::Function<Backward> {
  static variable_list forward(AutogradContext*, const at::Tensor& grad, const at::Tensor& x,
                               const at::Tensor& weight) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [grad_x, grad_weight] = call_backward(grad, x, weight);
    return {grad_x, grad_weight};
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "hkt::downsample: the second derivative is not implemented "
                                "(hkt::reference::downsample has one)");
  }
};

struct Forward : torch::autograd::Function<Forward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x, weight});
    return call_forward(x, weight);
  }
  // Goes through the operator, so that a tracer sees one node rather than the products inside.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    auto [grad_x, grad_weight] = call_backward(grads[0], saved[0], saved[1]);
    return {grad_x, grad_weight};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight) { return Forward::apply(x, weight); }

std::tuple<at::Tensor, at::Tensor> backward_autograd(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& weight) {
  const auto grads = Backward::apply(grad, x, weight);
  return {grads[0], grads[1]};
}

template <c10::DeviceType device>
at::Tensor forward_autocast(const at::Tensor& x, const at::Tensor& weight) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto type = at::autocast::get_autocast_dtype(device);
  return call_forward(at::autocast::cached_cast(type, x, device), at::autocast::cached_cast(type, weight, device));
}

TORCH_LIBRARY_FRAGMENT(hkt, m) {
  m.def("downsample(Tensor x, Tensor weight) -> Tensor");
  m.def("downsample_backward(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(hkt, CPU, m) {
  m.impl("downsample", forward);
  m.impl("downsample_backward", backward);
}
TORCH_LIBRARY_IMPL(hkt, CUDA, m) {
  m.impl("downsample", forward);
  m.impl("downsample_backward", backward);
}
TORCH_LIBRARY_IMPL(hkt, Meta, m) {
  m.impl("downsample", forward_meta);
  m.impl("downsample_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(hkt, Autograd, m) {
  m.impl("downsample", forward_autograd);
  m.impl("downsample_backward", backward_autograd);
}
TORCH_LIBRARY_IMPL(hkt, AutocastCPU, m) { m.impl("downsample", forward_autocast<at::kCPU>); }
TORCH_LIBRARY_IMPL(hkt, AutocastCUDA, m) { m.impl("downsample", forward_autocast<at::kCUDA>); }

}  // namespace

at::Tensor downsample(const at::Tensor& x, const at::Tensor& weight) { return call_forward(x, weight); }

}  // namespace hkt
