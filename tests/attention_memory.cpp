// SPDX-License-Identifier: Apache-2.0
// Memory of hkt::attention: linear in the length, and no copy of inputs that can be read as they lie.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "attention_cases.h"
#include "hkt/ops.h"
#include "memory_meter.h"

namespace hkt::testing {
namespace {

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// Results and workspace together stay below four times the inputs (forward) and eight times (forward and backward), plus
// what a thread needs whatever the length: at 16k the scores of one head alone would be 60 times the inputs.
TEST(AttentionMemory, IsLinearInTheLength) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t heads : {1, 8}) {
      for (const int64_t length : {1024, 4096, 16384}) {
        if (heads > 1 && length > 4096) continue;  // time, not memory
        const AttentionCase c{1, heads, length, 32, 32, 3, true};
        const auto inputs = make_inputs(c, type, 1);
        const auto inputs_bytes = bytes_of(inputs.all());
        const int64_t forward = peak_bytes([&] {
          const at::NoGradGuard no_grad;
          hkt::attention(inputs.q, inputs.k, inputs.v, inputs.weights, true);
        });
        const int64_t both = peak_bytes([&] {
          const auto out = std::get<0>(hkt::attention(inputs.q, inputs.k, inputs.v, inputs.weights, true));
          torch::autograd::grad({out}, inputs.all(), {out.detach()});
        });
        RecordProperty("forward_" + std::to_string(length), static_cast<int>(forward / 1024));
        RecordProperty("both_" + std::to_string(length), static_cast<int>(both / 1024));
        const int64_t per_machine = at::get_num_threads() * int64_t{4} << 20;
        EXPECT_LE(forward, 4 * inputs_bytes + per_machine) << "T = " << length << ", " << heads << " heads";
        EXPECT_LE(both, 8 * inputs_bytes + per_machine) << "T = " << length << ", " << heads << " heads";
      }
    }
}

TEST(AttentionMemory, StridedInputsAreNotCopied) {
  for (const bool gradient : {false, true}) {
    std::vector<int64_t> peaks;
    for (const auto layout : {Layout::heads_first, Layout::heads_inside, Layout::padded_rows}) {
      const AttentionCase c{4, 8, 512, 64, 64, 3, false, false, layout};
      const auto inputs = make_inputs(c, at::kFloat, 2);
      peaks.push_back(peak_bytes([&] {
        const at::AutoGradMode mode(gradient);
        const auto out = std::get<0>(hkt::attention(inputs.q, inputs.k, inputs.v, inputs.weights));
        if (gradient) torch::autograd::grad({out}, inputs.all(), {out.detach()});
      }));
    }
    EXPECT_EQ(peaks[0], peaks[1]);
    EXPECT_EQ(peaks[0], peaks[2]);
  }
}

}  // namespace
}  // namespace hkt::testing
