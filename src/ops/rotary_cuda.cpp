// SPDX-License-Identifier: Apache-2.0
// Rotary positions: an autograd node around the kernel.
#include "ops/rotary_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

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

struct Rotated : torch::autograd::Function<Rotated> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& factors,
                               at::IntArrayRef parts) {
    const at::AutoDispatchBelowADInplaceOrView guard;  // the parts are no views of one tensor to autograd
    const c10::cuda::CUDAGuard on_device(rows.device());
    context->saved_data["parts"] = parts.vec();
    context->save_for_backward({factors});
    const auto all = at::empty(rows.sizes(), rows.options());
    rotate(rows, all, factors, false);
    variable_list results;
    for (const auto& part : all.split_with_sizes(parts, 2)) results.push_back(part.transpose(1, 2));
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "the rotary positions of hkt on CUDA have a first derivative only; the second is not "
                                "implemented.");
    const auto parts = context->saved_data["parts"].toIntVector();
    const auto factors = context->get_saved_variables().front();
    at::Tensor given;
    int64_t heads = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (grads[i].defined()) given = grads[i];
      heads += parts[i];
    }
    if (!given.defined()) return {{}, {}, {}};
    const c10::cuda::CUDAGuard on_device(given.device());
    const auto grad = at::empty({given.size(0), given.size(2), heads, given.size(3)},
                                given.options().memory_format(at::MemoryFormat::Contiguous));
    int64_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto part = grad.narrow(2, first, parts[i]);
      if (grads[i].defined())
        rotate(grads[i].transpose(1, 2), part, factors, true);
      else
        part.zero_();
      first += parts[i];
    }
    return {grad, {}, {}};
  }
};

}  // namespace

bool rotary_cuda_takes(const at::Tensor& rows) { return rows.is_cuda() && rows.scalar_type() != at::kDouble; }

std::vector<at::Tensor> rotary_cuda(const at::Tensor& rows, const at::Tensor& factors, at::IntArrayRef parts) {
  return Rotated::apply(rows, factors, parts);
}

}  // namespace hkt::ops
