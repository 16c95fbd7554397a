// SPDX-License-Identifier: Apache-2.0
// The module ShortConvolution: the last few tokens, weighted, at full resolution.
#include <ATen/ATen.h>

#include "hkt/modules.h"

#ifdef HKT_WITH_CUDA
#include "ops/depthwise_cuda.h"
#endif

namespace hkt {

ShortConvolutionImpl::ShortConvolutionImpl(int64_t width, Convolution kind, int64_t taps) {
  TORCH_CHECK_VALUE(width >= 1, "width is ", width, "; ShortConvolution needs at least 1.");
  TORCH_CHECK_VALUE(taps >= 2, "taps is ", taps, "; ShortConvolution needs at least 2.");
  TORCH_CHECK_VALUE(kind != Convolution::none, "kind is none; ShortConvolution must be depthwise or dense.");
  if (kind == Convolution::dense) {
    constexpr double noise = 0.02;  // enough to break the symmetry between channels
    const auto mean = at::eye(width).mul_(1 / static_cast<double>(taps));
    weight = register_parameter("weight", at::randn({taps, width, width}).mul_(noise).add_(mean));
  } else {
    weight = at::zeros({taps, width});
    weight[1].fill_(1);
    weight = register_parameter("weight", weight);
  }
}

at::Tensor ShortConvolutionImpl::forward(const at::Tensor& x) {
  const int64_t length = x.size(1);
  const bool dense = weight.dim() == 3;
#ifdef HKT_WITH_CUDA
  if (!dense && ops::depthwise_cuda_takes(x)) return ops::short_convolution_cuda(x, weight.to(x.scalar_type()));
#endif
  auto y = dense ? at::zeros_like(x) : x;
  for (int64_t tap = 0; tap < weight.size(0) && tap < length; ++tap) {
    const auto earlier = x.narrow(1, 0, length - tap);
    const auto part = dense ? at::matmul(earlier, weight[tap]) : earlier * weight[tap].to(x.scalar_type());
    y = y + at::constant_pad_nd(part, {0, 0, tap, 0});
  }
  return y;
}

}  // namespace hkt
