// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: kernels for bfloat16, widths 65 to 128.
#include "sm90/forward_wide.h"

namespace hkt::kernels::cuda::sm90 {

template void launch_forward_wide<bfloat16, 1>(const ForwardParameters&, int, void*);
template void launch_forward_wide<bfloat16, 3>(const ForwardParameters&, int, void*);
template void launch_forward_wide<bfloat16, max_levels>(const ForwardParameters&, int, void*);

}  // namespace hkt::kernels::cuda::sm90
