// SPDX-License-Identifier: Apache-2.0
// The decode kernels for float16, width 32.
#include "decode/extend.h"

namespace hkt::kernels::cuda::decode {

template void start_extend<float16, 32>(const AttentionExtend&, const Device&, void*);

}  // namespace hkt::kernels::cuda::decode
