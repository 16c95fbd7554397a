// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions: from tensors to the kernels, and an autograd node for the short convolution.
#include "ops/depthwise_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "attention_problem.h"
#include "device_cuda.h"
#include "kernels/depthwise.h"

namespace hkt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor with_adjacent_channels(const at::Tensor& x) { return x.stride(2) == 1 ? x : x.contiguous(); }

// Sets the fields that both passes use.
void describe(kernels::cuda::Depthwise& problem, const at::Tensor& x, const at::Tensor& weight, std::int64_t step) {
  problem.element = element_of(x.scalar_type());
  problem.batch = x.size(0);
  problem.length = x.size(1);
  problem.width = static_cast<int>(x.size(2));
  problem.taps = static_cast<int>(weight.size(0));
  problem.step = static_cast<int>(step);
  problem.x = x.const_data_ptr();
  problem.x_batch_stride = x.stride(0);
  problem.x_row_stride = x.stride(1);
  problem.weight = weight.const_data_ptr();
}

struct Convolved : torch::autograd::Function<Convolved> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return depthwise_cuda(x, weight, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "the short convolution of hkt on CUDA has a first derivative only; the second is not "
                                "implemented.");
    const auto saved = context->get_saved_variables();
    auto [grad_x, grad_weight] = depthwise_backward_cuda(grads[0], saved[0], saved[1], 1);
    return {grad_x, grad_weight};
  }
};

}  // namespace

bool depthwise_cuda_takes(const at::Tensor& x) { return x.is_cuda() && x.scalar_type() != at::kDouble; }

at::Tensor depthwise_cuda(const at::Tensor& x_any, const at::Tensor& weight_any, std::int64_t step) {
  const c10::cuda::CUDAGuard on_device(x_any.device());
  const auto x = with_adjacent_channels(x_any), weight = weight_any.contiguous();
  auto y = at::empty({x.size(0), (x.size(1) + step - 1) / step, x.size(2)}, x.options());
  kernels::cuda::Depthwise problem;
  describe(problem, x, weight, step);
  problem.y = y.data_ptr();
  kernels::cuda::depthwise_forward(problem, current_device());
  return y;
}

std::tuple<at::Tensor, at::Tensor> depthwise_backward_cuda(const at::Tensor& grad_any, const at::Tensor& x_any,
                                                           const at::Tensor& weight_any, std::int64_t step) {
  const c10::cuda::CUDAGuard on_device(x_any.device());
  const auto grad = grad_any.contiguous(), x = with_adjacent_channels(x_any), weight = weight_any.contiguous();
  auto grad_x = at::empty(x.sizes(), x.options()), grad_weight = at::empty(weight.sizes(), weight.options());
  kernels::cuda::DepthwiseBackward problem;
  describe(problem, x, weight, step);
  problem.grad_y = grad.const_data_ptr();
  problem.grad_x = grad_x.data_ptr();
  problem.grad_weight = grad_weight.data_ptr();
  const auto device = current_device();
  const auto workspace = at::empty({kernels::cuda::workspace_bytes(problem, device)}, x.options().dtype(at::kByte));
  kernels::cuda::depthwise_backward(problem, device, workspace.data_ptr());
  return {grad_x, grad_weight};
}

at::Tensor short_convolution_cuda(const at::Tensor& x, const at::Tensor& weight) { return Convolved::apply(x, weight); }

}  // namespace hkt::ops
