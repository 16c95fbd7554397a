// SPDX-License-Identifier: Apache-2.0
// The attention operators on CUDA: gives the kernels torch's device, stream, allocator and deterministic setting.
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
                               bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale,
                               int64_t start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, start};
  check_attention_inputs(inputs);
  const c10::cuda::CUDAGuard on_device(v.device());
  const auto output = empty_attention_output(q, v, at::cuda::getCUDADeviceAllocator());
  if (std::get<0>(output).numel() == 0) return output;
  const auto call = forward_call(inputs, output);
  const auto device = current_device();
  const auto plan = kernels::cuda::plan(call.problem, device);
  const auto workspace = allocate_workspace(plan, v);
  kernels::cuda::attention_forward(call.problem, device, plan, workspace.data_ptr());
  return output;
}

AttentionGradients attention_backward_cuda(const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse,
                                           at::TensorList q, at::TensorList k, const at::Tensor& v,
                                           const at::Tensor& weights, const at::Tensor& out, const at::Tensor& lse,
                                           bool causal, const std::optional<at::Tensor>& lengths,
                                           std::optional<double> scale, int64_t start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, start};
  check_attention_inputs(inputs);
  check_attention_gradient(grad_out, grad_lse, inputs, out, lse);
  const c10::cuda::CUDAGuard on_device(v.device());
  const auto allocator = at::cuda::getCUDADeviceAllocator();
  const auto gradients = empty_attention_gradients(inputs, allocator);
  if (out.numel() == 0) {
    set_to_zero(gradients);
    return in_types_of_inputs(gradients, weights);
  }
  const auto per_head = per_head_gradients(inputs, gradients, allocator);
  const auto call = backward_call(grad_out, grad_lse, inputs, {out, lse}, per_head);
  const auto device = current_device();
  const auto plan = kernels::cuda::plan(call.problem, device);
  const auto workspace = allocate_workspace(plan, v);
  kernels::cuda::attention_backward(call.problem, device, plan, workspace.data_ptr());
  if (inputs.is_grouped()) {
    const auto sums = key_gradients(gradients);
    kernels::cuda::sum_over_groups(call.problem, sums.k, sums.v, device);
  }
  return in_types_of_inputs(gradients, weights);
}

AttentionOutput extend_on_cuda(const ExtendInputs& inputs) {
  check_extend_inputs(inputs);
  const c10::cuda::CUDAGuard on_device(inputs.v.device());
  const auto output = empty_attention_output(inputs.q, inputs.v, at::cuda::getCUDADeviceAllocator());
  if (std::get<0>(output).numel() == 0) return output;
  const auto call = extend_call(inputs, output);
  const auto device = current_device();
  const auto plan = kernels::cuda::plan(call.problem, device);
  const auto workspace = allocate_workspace(plan, inputs.v);
  kernels::cuda::attention_extend(call.problem, device, plan, workspace.data_ptr());
  return output;
}

AttentionOutput extend_cuda(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, std::optional<double> scale) {
  return extend_on_cuda({q, k, v, weights, ends, scale});
}

AttentionOutput decode_cuda(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const at::Tensor& ends, at::TensorList coarse, std::optional<double> scale, bool refresh) {
  const auto output = extend_on_cuda({q, k, v, weights, ends, scale, coarse, refresh});
  count_as_written(coarse);
  return output;
}

TORCH_LIBRARY_IMPL(hkt, CUDA, m) {
  m.impl("attention_extend", extend_cuda);
  m.impl("decode", decode_cuda);
  m.impl("attention", attention_cuda);
  m.impl("attention_backward", attention_backward_cuda);
}

}  // namespace
}  // namespace hkt::ops
