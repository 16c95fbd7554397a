// SPDX-License-Identifier: Apache-2.0
// The module Downsample: a causal filter, initialised to the mean of its taps.
#include <ATen/ATen.h>

#include "hkt/modules.h"
#include "hkt/ops.h"

namespace hkt {

DownsampleImpl::DownsampleImpl(int64_t width, Filter filter, int64_t kernel_size) {
  TORCH_CHECK_VALUE(width >= 1, "width is ", width, "; Downsample needs at least 1.");
  TORCH_CHECK_VALUE(kernel_size >= 1, "kernel_size is ", kernel_size, "; Downsample needs at least 1.");
  constexpr double noise = 0.02;  // enough to break the symmetry between channels
  const double mean = 1 / static_cast<double>(kernel_size);
  switch (filter) {
    case Filter::dense:
      weight = register_parameter("weight",
                                  at::randn({kernel_size, width, width}).mul_(noise).add_(at::eye(width).mul_(mean)));
      return;
    case Filter::depthwise:
      weight = register_parameter("weight", at::full({kernel_size, width}, mean));
      return;
    case Filter::mean:
      weight = register_buffer("weight", at::full({kernel_size, width}, mean));
      return;
  }
  TORCH_CHECK_VALUE(false, "filter is ", static_cast<int>(filter), "; it must be dense, depthwise or mean.");
}

at::Tensor DownsampleImpl::forward(const at::Tensor& x) { return hkt::downsample(x, weight); }

}  // namespace hkt
