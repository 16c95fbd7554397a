// SPDX-License-Identifier: Apache-2.0
// The plain kernels for bfloat16.
#include "plain/backward.h"
#include "plain/forward.h"

namespace hkt::kernels::cuda::plain {

template void start_forward<bfloat16>(const AttentionForward&, const Device&);
template void start_backward<bfloat16>(const AttentionBackward&, const Device&, void*);

}  // namespace hkt::kernels::cuda::plain
