// SPDX-License-Identifier: Apache-2.0
// Layer norm: an autograd node around the kernels.
#include "ops/layer_norm_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device_cuda.h"
#include "kernels/layer_norm.h"

namespace hkt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sets the fields that both passes use; all tensors are contiguous.
void describe(kernels::cuda::LayerNorm& problem, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
              const at::Tensor& rstd, at::ScalarType type) {
  problem.element = type == at::kBFloat16 ? kernels::Element::bfloat16 : kernels::Element::float32;
  problem.rows = mean.numel();
  problem.width = static_cast<int>(weight.numel());
  problem.x = x.const_data_ptr<float>();
  problem.weight = weight.const_data_ptr<float>();
  problem.mean = mean.data_ptr<float>();
  problem.rstd = rstd.data_ptr<float>();
}

struct Norm : torch::autograd::Function<Norm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_any, const at::Tensor& weight_any,
                            const at::Tensor& bias_any, double epsilon, at::ScalarType type) {
    const c10::cuda::CUDAGuard on_device(x_any.device());
    const auto x = x_any.contiguous(), weight = weight_any.contiguous(), bias = bias_any.contiguous();
    const auto mean = at::empty({x.numel() / weight.numel()}, x.options()), rstd = at::empty_like(mean);
    auto y = at::empty(x.sizes(), x.options().dtype(type));
    kernels::cuda::LayerNorm problem;
    describe(problem, x, weight, mean, rstd, type);
    problem.epsilon = static_cast<float>(epsilon);
    problem.bias = bias.const_data_ptr<float>();
    problem.y = y.data_ptr();
    kernels::cuda::layer_norm_forward(problem, current_device());
    context->save_for_backward({x, weight, mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "the layer norm of hkt on CUDA has a first derivative only; its second derivative is "
                                "not implemented (at::layer_norm has one).");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const c10::cuda::CUDAGuard on_device(x.device());
    const auto grad_y = grads[0].contiguous();
    const auto grad_x = at::empty_like(x), grad_weight = at::empty_like(weight), grad_bias = at::empty_like(weight);
    kernels::cuda::LayerNormBackward problem;
    describe(problem, x, weight, saved[2], saved[3], grad_y.scalar_type());
    problem.grad_y = grad_y.const_data_ptr();
    problem.grad_x = grad_x.data_ptr<float>();
    problem.grad_weight = grad_weight.data_ptr<float>();
    problem.grad_bias = grad_bias.data_ptr<float>();
    const auto device = current_device();
    const auto workspace = at::empty({kernels::cuda::workspace_bytes(problem, device)}, x.options().dtype(at::kByte));
    kernels::cuda::layer_norm_backward(problem, device, workspace.data_ptr());
    return {grad_x, grad_weight, grad_bias, {}, {}};  // none for epsilon and type
  }
};

}  // namespace

bool layer_norm_cuda_takes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [&](const at::Tensor& parameter) {
    return parameter.defined() && parameter.dim() == 1 && parameter.size(0) == x.size(-1) &&
           parameter.scalar_type() == at::kFloat && parameter.device() == x.device();
  };
  return x.is_cuda() && x.scalar_type() == at::kFloat && x.dim() >= 1 && x.size(-1) >= 1 &&
         x.size(-1) <= kernels::cuda::max_norm_width && fits(weight) && fits(bias);
}

at::Tensor layer_norm_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                           at::ScalarType type) {
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16, "type is ", type,
                    "; the layer norm of hkt on CUDA returns float32 or bfloat16.");
  return Norm::apply(x, weight, bias, epsilon, type);
}

}  // namespace hkt::ops
