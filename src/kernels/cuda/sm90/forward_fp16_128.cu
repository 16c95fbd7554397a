// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: float16, widths up to 128.
#include <algorithm>

#include "../launch.h"
#include "forward_wide.h"

namespace hkt::kernels::cuda::sm90 {

template <class T, int width, int levels>
void start_forward(const ForwardParameters& parameters, const Device& device) {
  launch(forward_wide<T, levels>, std::min(parameters.items, device.multiprocessors), wide_threads<levels>,
         WideLayout<levels>::bytes, device.stream, parameters);
}

template void start_forward<float16, 128, 1>(const ForwardParameters& parameters, const Device& device);
template void start_forward<float16, 128, 3>(const ForwardParameters& parameters, const Device& device);
template void start_forward<float16, 128, max_levels>(const ForwardParameters& parameters, const Device& device);

}  // namespace hkt::kernels::cuda::sm90
