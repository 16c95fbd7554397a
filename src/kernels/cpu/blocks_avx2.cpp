// SPDX-License-Identifier: Apache-2.0
// The block kernels for AVX2.
#define HKT_CPU_TARGET avx2
#define HKT_VECTOR_BYTES 32
#include "blocks.h"

namespace hkt::kernels::cpu::avx2 {
Blocks blocks(Element element) { return make_plain_blocks(element); }
}  // namespace hkt::kernels::cpu::avx2
