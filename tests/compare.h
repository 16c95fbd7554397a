// SPDX-License-Identifier: Apache-2.0
// A comparison of tensors that NaN cannot pass. A failure prints the case, the worst place and both values.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace hkt::testing {

// Every |a − b| ≤ tolerance · (1 + |b|); a NaN or an infinity on one side fails.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const auto a = actual.detach().to(at::kDouble).flatten();
  const auto b = expected.detach().to(at::kDouble).flatten();
  const auto same_infinity = a.isinf() & (a == b);
  const auto error = at::where(same_infinity, 0.0, (a - b).abs() / (1 + b.abs())).nan_to_num(1e300, 1e300, 1e300);
  const auto worst = error.argmax().item<int64_t>();
  EXPECT_LE(error[worst].item<double>(), tolerance)
      << what << ": worst at flat index " << worst << " of " << expected.sizes() << ", " << a[worst].item<double>()
      << " should be " << b[worst].item<double>();
}

}  // namespace hkt::testing
