// SPDX-License-Identifier: Apache-2.0
// hkt::downsample compared with the same filter as a convolution.
#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "harness.h"
#include "hkt/ops.h"

namespace hkt::bench {

Table downsample_shapes(bool quick) {
  Table table("hkt::downsample, dense, K = 2, float32",
              {"B, T, d", "forward ms", "GFLOP/s", "to conv1d", "forward+backward ms", "to conv1d"});
  struct Shape {
    int64_t batch, length, width;
  };
  for (const auto& [batch, length, width] :
       std::vector<Shape>{{64, 48, 128}, {64, 47, 128}, {16, 1024, 128}, {4, 4096, 512}}) {
    if (quick && width > 128) continue;
    const auto x = at::randn({batch, length, width}).requires_grad_();
    const auto weight = (at::randn({2, width, width}) / std::sqrt(width)).requires_grad_();
    const int64_t rows = (length + 1) / 2;
    const auto direction = at::randn({batch, rows, width});
    const auto ours = [=] { return hkt::downsample(x, weight); };
    const auto convolution = [=] {
      const auto padded = at::constant_pad_nd(x.transpose(1, 2), {1, 0});
      return at::conv1d(padded, weight.flip(0).permute({2, 1, 0}), {}, 2).transpose(1, 2);
    };
    const auto forward = [](const auto& function) {
      return [function] {
        const at::NoGradGuard no_grad;
        function();
      };
    };
    const auto both = [=](const auto& function) {
      return [=] { torch::autograd::grad({function()}, {x, weight}, {direction}); };
    };
    const int rounds = quick ? 3 : 11;
    const Timings f({{"ours", forward(ours)}, {"conv1d", forward(convolution)}}, rounds);
    const Timings b({{"ours", both(ours)}, {"conv1d", both(convolution)}}, rounds);
    const double operations = 2.0 * static_cast<double>(batch * rows * 2 * width * width);
    table.add({std::to_string(batch) + ", " + std::to_string(length) + ", " + std::to_string(width),
               number(f.seconds("ours") * 1e3, 3), number(operations / f.seconds("ours") / 1e9, 0),
               number(f.ratio("ours", "conv1d"), 2), number(b.seconds("ours") * 1e3, 3),
               number(b.ratio("ours", "conv1d"), 2)});
  }
  return table;
}

}  // namespace hkt::bench
