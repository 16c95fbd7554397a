// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: bfloat16, widths up to 32.
#include <algorithm>

#include "../launch.h"
#include "forward_small.h"

namespace hkt::kernels::cuda::sm90 {

template <class T, int width, int levels>
void start_forward(const ForwardParameters& parameters, const Device& device) {
  launch(forward_small<T, width, levels>, std::min(parameters.items, device.multiprocessors), small_threads,
         SmallLayout<width, levels>::bytes, device.stream, parameters);
}

template void start_forward<bfloat16, 32, 1>(const ForwardParameters& parameters, const Device& device);
template void start_forward<bfloat16, 32, 3>(const ForwardParameters& parameters, const Device& device);
template void start_forward<bfloat16, 32, max_levels>(const ForwardParameters& parameters, const Device& device);

}  // namespace hkt::kernels::cuda::sm90
