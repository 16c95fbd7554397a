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

enum class Form : std::uint8_t { downsampling, short_convolution };

// Sets the fields that both passes use.
void describe(kernels::cuda::Depthwise& problem, const at::Tensor& x, const at::Tensor& weight, Form form) {
  problem.element = element_of(x.scalar_type());
  problem.batch = x.size(0);
  problem.length = x.size(1);
  problem.width = static_cast<int>(x.size(2));
  problem.taps = static_cast<int>(weight.size(0));
  problem.step = form == Form::downsampling ? 2 : 1;
  problem.residual = form == Form::short_convolution;
  problem.x = x.const_data_ptr();
  problem.x_batch_stride = x.stride(0);
  problem.x_row_stride = x.stride(1);
  problem.weight = weight.const_data_ptr();
}

// x and weight are as the kernels read them, as is the gradient below.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, Form form) {
  const auto rows = form == Form::downsampling ? (x.size(1) + 1) / 2 : x.size(1);
  auto y = at::empty({x.size(0), rows, x.size(2)}, x.options());
  kernels::cuda::Depthwise problem;
  describe(problem, x, weight, form);
  problem.y = y.data_ptr();
  kernels::cuda::depthwise_forward(problem, current_device());
  return y;
}

std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                             Form form) {
  auto grad_x = at::empty(x.sizes(), x.options()), grad_weight = at::empty(weight.sizes(), weight.options());
  kernels::cuda::DepthwiseBackward problem;
  describe(problem, x, weight, form);
  problem.grad_y = grad.const_data_ptr();
  problem.grad_x = grad_x.data_ptr();
  problem.grad_weight = grad_weight.data_ptr();
  const auto device = current_device();
  const auto workspace = at::empty({kernels::cuda::workspace_bytes(problem, device)}, x.options().dtype(at::kByte));
  kernels::cuda::depthwise_backward(problem, device, workspace.data_ptr());
  return {grad_x, grad_weight};
}

struct ShortConvolution : torch::autograd::Function<ShortConvolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_any, const at::Tensor& weight_any) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const c10::cuda::CUDAGuard on_device(x_any.device());
    const auto x = with_adjacent_channels(x_any), weight = weight_any.contiguous();
    context->save_for_backward({x, weight});
    return convolve(x, weight, Form::short_convolution);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "the short convolution of hkt on CUDA has a first derivative only; the second is not "
                                "implemented.");
    const auto saved = context->get_saved_variables();
    const c10::cuda::CUDAGuard on_device(saved[0].device());
    auto [grad_x, grad_weight] = gradients(grads[0].contiguous(), saved[0], saved[1], Form::short_convolution);
    return {grad_x, grad_weight};
  }
};

}  // namespace

bool depthwise_cuda_takes(const at::Tensor& x) { return x.is_cuda() && x.scalar_type() != at::kDouble; }

at::Tensor downsample_cuda(const at::Tensor& x, const at::Tensor& weight) {
  const c10::cuda::CUDAGuard on_device(x.device());
  return convolve(with_adjacent_channels(x), weight.contiguous(), Form::downsampling);
}

std::tuple<at::Tensor, at::Tensor> downsample_backward_cuda(const at::Tensor& grad, const at::Tensor& x,
                                                            const at::Tensor& weight) {
  const c10::cuda::CUDAGuard on_device(x.device());
  return gradients(grad.contiguous(), with_adjacent_channels(x), weight.contiguous(), Form::downsampling);
}

at::Tensor short_convolution_cuda(const at::Tensor& x, const at::Tensor& weight) {
  return ShortConvolution::apply(x, weight);
}

}  // namespace hkt::ops
