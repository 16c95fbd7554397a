// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: kernels for bfloat16, widths above 64.
#include "sm90/backward_wide.h"

namespace hkt::kernels::cuda::sm90 {

template void launch_backward_wide<bfloat16, false, false>(const BackwardParameters&, const Device&);
template void launch_backward_wide<bfloat16, true, false>(const BackwardParameters&, const Device&);
template void launch_backward_wide<bfloat16, true, true>(const BackwardParameters&, const Device&);

}  // namespace hkt::kernels::cuda::sm90
