// SPDX-License-Identifier: Apache-2.0
// hkt::attention on CUDA: gives the kernels torch's device, stream, allocator and deterministic setting.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "attention_problem.h"
#include "device_cuda.h"

namespace hkt::ops {
namespace {

// Not at::empty, which under torch.use_deterministic_algorithms fills the memory: up to hundreds of megabytes, for nothing.
at::Tensor allocate_workspace(const kernels::cuda::Plan& plan, const at::Tensor& like) {
  return at::detail::empty_cuda({plan.workspace_bytes}, like.options().dtype(at::kByte));
}

AttentionOutput attention_cuda(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  const c10::cuda::CUDAGuard on_device(v.device());
  const auto output = empty_attention_output(v, at::cuda::getCUDADeviceAllocator());
  if (v.numel() == 0) return output;
  const auto call = forward_call(q, k, v, weights, causal, lengths, scale, output);
  const auto device = current_device();
  const auto plan = kernels::cuda::plan(call.problem, device);
  const auto workspace = allocate_workspace(plan, v);
  kernels::cuda::attention_forward(call.problem, device, plan, workspace.data_ptr());
  return output;
}

AttentionGradients attention_backward_cuda(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                           const at::Tensor& v, const at::Tensor& weights, const at::Tensor& out,
                                           const at::Tensor& lse, bool causal, const std::optional<at::Tensor>& lengths,
                                           std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  check_attention_gradient(grad_out, v, out, lse);
  const c10::cuda::CUDAGuard on_device(v.device());
  const auto gradients = empty_attention_gradients(q, k, v, weights, at::cuda::getCUDADeviceAllocator());
  if (v.numel() == 0) {
    std::get<3>(gradients).zero_();
    return in_types_of_inputs(gradients, weights);
  }
  const auto call = backward_call(grad_out, q, k, v, weights, causal, lengths, scale, {out, lse}, gradients);
  const auto device = current_device();
  const auto plan = kernels::cuda::plan(call.problem, device);
  const auto workspace = allocate_workspace(plan, v);
  kernels::cuda::attention_backward(call.problem, device, plan, workspace.data_ptr());
  return in_types_of_inputs(gradients, weights);
}

TORCH_LIBRARY_IMPL(hkt, CUDA, m) {
  m.impl("attention", attention_cuda);
  m.impl("attention_backward", attention_backward_cuda);
}

}  // namespace
}  // namespace hkt::ops
