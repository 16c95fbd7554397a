// SPDX-License-Identifier: Apache-2.0
// The instruction sets that this machine supports, and their block kernels.
#include "attention_blocks.h"

namespace hkt::kernels::cpu {

InstructionSet best_instruction_set() {
#ifdef HKT_X86_KERNELS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512_bf16;
  if (avx512) return InstructionSet::avx512;
  if (avx2) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

std::string_view name(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable:
      return "portable";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

Blocks choose_blocks(InstructionSet set, Element element) {
#ifdef HKT_X86_KERNELS
  if (set == InstructionSet::avx512_bf16 && element == Element::bfloat16) return avx512_bf16::blocks();
  if (set >= InstructionSet::avx512) return avx512::blocks(element);
  if (set == InstructionSet::avx2) return avx2::blocks(element);
#else
  static_cast<void>(set);
#endif
  return portable::blocks(element);
}

}  // namespace hkt::kernels::cpu
