// SPDX-License-Identifier: Apache-2.0
// The sm80 kernels for bfloat16, width 32.
#include "sm80/backward.h"
#include "sm80/forward.h"

namespace hkt::kernels::cuda::sm80 {

template void start_forward<bfloat16, 32>(const AttentionForward&, const Device&);
template void start_extend<bfloat16, 32>(const AttentionExtend&, const Device&);
template void start_backward<bfloat16, 32, 3>(const AttentionBackward&, const Device&, void*);
template void start_backward<bfloat16, 32, max_levels>(const AttentionBackward&, const Device&, void*);

}  // namespace hkt::kernels::cuda::sm80
