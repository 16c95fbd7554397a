// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: kernels for bfloat16, widths up to 64.
#include "sm90/backward_narrow.h"

namespace hkt::kernels::cuda::sm90 {

template void launch_backward_narrow<bfloat16, 32, false, false>(const BackwardParameters&, const Device&);
template void launch_backward_narrow<bfloat16, 32, true, false>(const BackwardParameters&, const Device&);
template void launch_backward_narrow<bfloat16, 32, true, true>(const BackwardParameters&, const Device&);
template void launch_backward_narrow<bfloat16, 64, false, false>(const BackwardParameters&, const Device&);
template void launch_backward_narrow<bfloat16, 64, true, false>(const BackwardParameters&, const Device&);
template void launch_backward_narrow<bfloat16, 64, true, true>(const BackwardParameters&, const Device&);

}  // namespace hkt::kernels::cuda::sm90
