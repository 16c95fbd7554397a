// SPDX-License-Identifier: Apache-2.0
// The block kernels for any machine.
#define HKT_CPU_TARGET portable
#define HKT_VECTOR_BYTES 16
#include "blocks.h"

namespace hkt::kernels::cpu::portable {
Blocks blocks(Element element) { return make_plain_blocks(element); }
}  // namespace hkt::kernels::cpu::portable
