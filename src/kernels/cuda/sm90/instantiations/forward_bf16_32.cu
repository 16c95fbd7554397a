// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: kernels for bfloat16, widths up to 32.
#include "sm90/forward_narrow.h"

namespace hkt::kernels::cuda::sm90 {

template void launch_forward_narrow<bfloat16, 32, 1>(const ForwardParameters&, int, void*);
template void launch_forward_narrow<bfloat16, 32, 3>(const ForwardParameters&, int, void*);
template void launch_forward_narrow<bfloat16, 32, max_levels>(const ForwardParameters&, int, void*);

}  // namespace hkt::kernels::cuda::sm90
