// SPDX-License-Identifier: Apache-2.0
// Builds the tables of block kernels for one instruction set. Each blocks_*.cpp includes this for its own.
#pragma once

#include "backward.h"
#include "decode.h"
#include "forward.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

template <class Parts, class Shape = Head>
std::int64_t bytes_of(const Shape& head) {
  Arena arena(nullptr);
  Parts(arena, head);
  return arena.bytes();
}

template <class Math, class E>
Blocks make_blocks() {
  return {{forward_rows, bytes_of<KeySide<Math, E>>, bytes_of<ForwardScratch<Math>>, prepare_forward<Math, E>,
           compute_forward<Math, E>},
          {backward_rows, key_columns, bytes_of<QuerySide<Math, E>>, bytes_of<BackwardScratch<Math>>,
           prepare_backward<Math, E>, compute_backward<Math, E>},
          {bytes_of<DecodeScratch<E>, DecodeHead>, bytes_of<Partial<E>, DecodeHead>, decode_chunk<E>, decode_merge<E>}};
}

inline Blocks make_plain_blocks(Element element) {
  switch (element) {
    case Element::float64:
      return make_blocks<Plain<double>, double>();
    case Element::bfloat16:
      return make_blocks<Plain<float>, BFloat16>();
    case Element::float16:
      return make_blocks<Plain<float>, Float16>();
    case Element::float32:
      break;
  }
  return make_blocks<Plain<float>, float>();
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
