// SPDX-License-Identifier: Apache-2.0
// The bfloat16 block kernels for AVX-512 with BF16, whose instructions multiply pairs of bfloat16 numbers.
#define HKT_CPU_TARGET avx512_bf16
#define HKT_VECTOR_BYTES 64
#include "blocks.h"

namespace hkt::kernels::cpu::avx512_bf16 {
Blocks blocks() { return make_blocks<BFloat16Pairs, BFloat16>(); }
}  // namespace hkt::kernels::cpu::avx512_bf16
