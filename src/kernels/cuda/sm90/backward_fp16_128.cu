// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: kernels for float16, widths above 64.
#include "backward_128.h"

namespace hkt::kernels::cuda::sm90 {

template void start_backward_wide<float16, false, false>(const BackwardParameters&, const Device&);
template void start_backward_wide<float16, true, false>(const BackwardParameters&, const Device&);
template void start_backward_wide<float16, true, true>(const BackwardParameters&, const Device&);

}  // namespace hkt::kernels::cuda::sm90
