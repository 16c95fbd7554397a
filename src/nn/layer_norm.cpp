// SPDX-License-Identifier: Apache-2.0
// The layer norm of the modules: hkt's kernels on CUDA, torch's elsewhere.
#include "nn/layer_norm.h"

#ifdef HKT_WITH_CUDA
#include <ATen/autocast_mode.h>

#include "ops/layer_norm_cuda.h"
#endif

namespace hkt {

at::Tensor layer_norm(const at::Tensor& x, torch::nn::LayerNorm& norm, [[maybe_unused]] NormOutput output) {
#ifdef HKT_WITH_CUDA
  if (ops::layer_norm_cuda_takes(x, norm->weight, norm->bias)) {
    const bool rounded = output == NormOutput::autocast && at::autocast::is_autocast_enabled(at::kCUDA) &&
                         at::autocast::get_autocast_dtype(at::kCUDA) == at::kBFloat16;
    return ops::layer_norm_cuda(x, norm->weight, norm->bias, norm->options.eps(), rounded ? at::kBFloat16 : at::kFloat);
  }
#endif
  return norm(x);
}

}  // namespace hkt
