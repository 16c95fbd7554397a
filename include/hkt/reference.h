// SPDX-License-Identifier: Apache-2.0
// The definition of HKT, written to be read: plain ATen, any floating dtype, O(T²) memory, differentiable by autograd.
// The fast operators of hkt/ops.h take the same arguments and are tested against these.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "hkt/export.h"

namespace hkt::reference {

// hkt::attention with the scores materialised. Computed in the dtype of weights; out has the dtype of v.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                        const at::Tensor& weights, bool causal = false,
                                                        const std::optional<at::Tensor>& lengths = {},
                                                        std::optional<double> scale = {}, std::int64_t start = 0);

// hkt::attention_extend: the causal attention of each sequence by itself, over the rows of the caches that count.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention_extend(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                               const at::Tensor& weights, const at::Tensor& ends,
                                                               std::optional<double> scale = {});

// The result of attention by standard attention on concatenated features:
//   Q = [λ_0 q(0), λ_1 rep₂ q(1), λ_2 rep₄ q(2), …],  K = [k(0), rep₂ k(1), rep₄ k(2), …].
// λ multiplies Q only: √λ on both Q and K would have no finite gradient at λ = 0.
HKT_EXPORT std::tuple<at::Tensor, at::Tensor> attention_concatenated(
    at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights, bool causal = false,
    const std::optional<at::Tensor>& lengths = {}, std::optional<double> scale = {}, std::int64_t start = 0);

// hkt::downsample as a loop over the taps of the filter.
HKT_EXPORT at::Tensor downsample(const at::Tensor& x, const at::Tensor& weight);

}  // namespace hkt::reference
