// SPDX-License-Identifier: Apache-2.0
// Rotary positions: an autograd node around the kernel.
#include "ops/rotary_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "attention_problem.h"
#include "device_cuda.h"
#include "kernels/rotary.h"

namespace hkt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [B, T, heads, D] with pairs of neighbours, as the kernel reads them.
kernels::Array array_of(const at::Tensor& rows) {
  return {rows.data_ptr(), rows.stride(0), rows.stride(2), rows.stride(1)};
}
at::Tensor with_pairs(const at::Tensor& rows) {
  const bool fits = rows.stride(3) == 1 && rows.stride(0) % 2 == 0 && rows.stride(1) % 2 == 0 &&
                    rows.stride(2) % 2 == 0 && rows.storage_offset() % 2 == 0;
  return fits ? rows : rows.contiguous();
}

void rotate(const at::Tensor& from_any, const at::Tensor& to, const at::Tensor& factors, bool conjugate) {
  const auto from = with_pairs(from_any);
  kernels::cuda::Rotary problem;
  problem.element = element_of(from.scalar_type());
  problem.batch = from.size(0);
  problem.length = from.size(1);
  problem.heads = static_cast<int>(from.size(2));
  problem.width = static_cast<int>(from.size(3));
  problem.conjugate = conjugate;
  problem.x = array_of(from);
  problem.y = array_of(to);
  const auto real = at::view_as_real(factors);
  problem.factors = real.const_data_ptr<float>();
  problem.factor_row_stride = real.stride(0);
  kernels::cuda::rotary(problem, current_device());
}

// The levels of stacked rows, [B, T_l, heads, D] each, as views.
std::vector<at::Tensor> levels_of(const at::Tensor& rows, int64_t batch, int64_t length, int64_t levels) {
  std::vector<at::Tensor> result;
  int64_t first = 0;
  for (int64_t l = 0; l < levels; ++l, length = (length + 1) / 2) {
    result.push_back(rows.narrow(0, first, batch * length).unflatten(0, {batch, length}));
    first += batch * length;
  }
  return result;
}
at::Tensor factors_of(const at::Tensor& factors, int64_t level) {
  return factors.slice(0, 0, factors.size(0), int64_t{1} << level);
}

struct Rotated : torch::autograd::Function<Rotated> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& factors,
                               int64_t batch, int64_t levels, at::IntArrayRef parts) {
    const at::AutoDispatchBelowADInplaceOrView guard;  // the parts are no views of one tensor to autograd
    const c10::cuda::CUDAGuard on_device(rows.device());
    context->saved_data["parts"] = parts.vec();
    context->saved_data["batch"] = batch;
    context->saved_data["levels"] = levels;
    context->save_for_backward({factors});
    const auto all = at::empty(rows.sizes(), rows.options());
    const auto from = levels_of(rows, batch, factors.size(0), levels);
    const auto to = levels_of(all, batch, factors.size(0), levels);
    variable_list results;
    for (int64_t l = 0; l < levels; ++l) {
      rotate(from[l], to[l], factors_of(factors, l), false);
      for (const auto& part : to[l].split_with_sizes(parts, 2)) results.push_back(part.transpose(1, 2));
    }
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "the rotary positions of hkt on CUDA have a first derivative only; the second is not "
                                "implemented.");
    const auto parts = context->saved_data["parts"].toIntVector();
    const auto batch = context->saved_data["batch"].toInt(), levels = context->saved_data["levels"].toInt();
    const auto factors = context->get_saved_variables().front();
    const auto given = std::find_if(grads.begin(), grads.end(), [](const at::Tensor& grad) { return grad.defined(); });
    if (given == grads.end()) return variable_list(5);
    const c10::cuda::CUDAGuard on_device(given->device());
    const auto heads = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    int64_t rows = 0;
    for (int64_t l = 0, length = factors.size(0); l < levels; ++l, length = (length + 1) / 2) rows += batch * length;
    const auto grad = at::empty({rows, heads, given->size(3)},
                                given->options().memory_format(at::MemoryFormat::Contiguous));
    const auto to = levels_of(grad, batch, factors.size(0), levels);
    auto next = grads.begin();
    for (int64_t l = 0; l < levels; ++l) {
      for (const auto& part : to[l].split_with_sizes(parts, 2)) {
        if (next->defined())
          rotate(next->transpose(1, 2), part, factors_of(factors, l), true);
        else
          part.zero_();
        ++next;
      }
    }
    return {grad, {}, {}, {}, {}};
  }
};

}  // namespace

bool rotary_cuda_takes(const at::Tensor& rows) { return rows.is_cuda() && rows.scalar_type() != at::kDouble; }

std::vector<at::Tensor> rotary_cuda(const at::Tensor& rows, const at::Tensor& factors, at::IntArrayRef parts) {
  return Rotated::apply(rows.flatten(0, 1), factors, rows.size(0), 1, parts);
}

std::vector<at::Tensor> rotary_levels_cuda(const at::Tensor& rows, const at::Tensor& factors, int64_t batch,
                                           int64_t levels, at::IntArrayRef parts) {
  return Rotated::apply(rows, factors, batch, levels, parts);
}

}  // namespace hkt::ops
