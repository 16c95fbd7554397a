// SPDX-License-Identifier: Apache-2.0
// What the two peers with a sparse pattern share.
#pragma once

#include "peers.h"

namespace hkt::peers {

// Whether query i sees key j by distance or because one of them is global, bool [T, T].
at::Tensor pattern_of(const Window& window, std::int64_t length, at::Device device);

// Softmax attention over a pattern, [T, T] or [B, T, T], and what mask and lengths allow.
at::Tensor attention_over(const Inputs& inputs, const at::Tensor& pattern);

// Which of `rows` queries are tokens of their sequence, bool [B, 1, rows, 1].
at::Tensor valid_rows(const at::Tensor& lengths, std::int64_t rows);

}  // namespace hkt::peers
