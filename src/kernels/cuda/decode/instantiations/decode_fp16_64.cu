// SPDX-License-Identifier: Apache-2.0
// The decode kernels for float16, width 64.
#include "decode/extend.h"

namespace hkt::kernels::cuda::decode {

template void start_extend<float16, 64>(const AttentionExtend&, const Device&, void*);

}  // namespace hkt::kernels::cuda::decode
