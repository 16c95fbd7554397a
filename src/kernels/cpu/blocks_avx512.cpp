// SPDX-License-Identifier: Apache-2.0
// The block kernels for AVX-512.
#define HKT_CPU_TARGET avx512
#define HKT_VECTOR_BYTES 64
#include "blocks.h"

namespace hkt::kernels::cpu::avx512 {
Blocks blocks(Element element) { return make_plain_blocks(element); }
}  // namespace hkt::kernels::cpu::avx512
