// SPDX-License-Identifier: Apache-2.0
// hkt::attention on a GPU compared with standard attention (the kernels of cuDNN and FlashAttention-2, through torch) and
// with HKT in plain PyTorch.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/cuda.h>

#include "attention_forms.h"
#include "harness.h"

namespace hkt::bench {
namespace {

void wait() { torch::cuda::synchronize(); }

at::Tensor cudnn(const Inputs& in, bool causal) {
  return std::get<0>(at::_scaled_dot_product_cudnn_attention(in.q[0], in.k[0], in.v, {}, true, 0, causal));
}
at::Tensor flash(const Inputs& in, bool causal) {
  return std::get<0>(at::_scaled_dot_product_flash_attention(in.q[0], in.k[0], in.v, 0, causal));
}

std::string ratio(const Timings& t, const std::string& name, const std::string& to) {
  return t.has(name) && t.has(to) ? number(t.ratio(name, to), 3) : "–";
}

}  // namespace

bool can_use_cuda() { return torch::cuda::is_available(); }

Table cuda_attention_shapes(bool quick) {
  Table table("hkt::attention on CUDA, L = 3, bf16: ratio of its time to others'",
              {"B, H, T, D", "mask", "pass", "ms", "TFLOP/s", "to cuDNN", "to FlashAttention-2", "L = 1 to cuDNN",
               "to concatenated", "to materialised"});
  std::vector<int64_t> lengths = {1024, 2048, 4096, 16384};
  if (quick) lengths = {1024, 4096};
  for (const int64_t width : {32, 64, 128})
    for (const int64_t length : lengths)
      for (const bool causal : {false, true})
        for (const bool backward : {false, true}) {
          const Shape s{std::max<int64_t>(1, 16384 / length), 16, length, width};
          const Inputs in(s, at::kBFloat16, at::kCUDA);
          const Inputs one({s.batch, s.heads, s.length, s.width, 1}, at::kBFloat16, at::kCUDA);
          const std::vector<at::Tensor> standard = {in.q[0], in.k[0], in.v};
          std::vector<Candidate> candidates = {
              candidate(
                  "cudnn", backward, [&] { return cudnn(in, causal); }, standard, in.direction),
              candidate(
                  "hkt", backward, [&] { return ours(in, causal); }, in.all, in.direction),
              candidate(
                  "one level", backward, [&] { return ours(one, causal); }, one.all, one.direction),
              candidate("flash", backward, [&] { return flash(in, causal); }, standard, in.direction)};
          if (!quick && length <= 4096)  // longer ones take minutes
            candidates.push_back(
                candidate("concatenated", backward, [&] { return concatenated(in, causal); }, in.all, in.direction));
          if (!quick && length <= 1024)
            candidates.push_back(
                candidate("materialised", backward, [&] { return materialised(in, causal); }, in.all, in.direction));
          const Timings t(candidates, quick ? 7 : 11, wait);
          table.add({text(s), causal ? "causal" : "full", backward ? "forward+backward" : "forward",
                     number(t.seconds("hkt") * 1e3, 3),
                     number(operations(s, causal, backward) / t.seconds("hkt") / 1e12, 0), ratio(t, "hkt", "cudnn"),
                     ratio(t, "hkt", "flash"), ratio(t, "one level", "cudnn"), ratio(t, "hkt", "concatenated"),
                     ratio(t, "hkt", "materialised")});
        }
  return table;
}

Table cuda_attention_levels(bool quick) {
  Table table("hkt::attention on CUDA, bf16, causal: growth with the levels (B = 4, H = 16, T = 4096), ratio to cuDNN",
              {"L", "D", "multiply-adds", "forward", "forward+backward", "deterministic to not"});
  for (const int64_t width : {64, 128})
    for (int64_t count = 1; count <= (quick ? 4 : 8); ++count) {
      const Shape s{4, 16, 4096, width, count};
      const Inputs in(s, at::kBFloat16, at::kCUDA);
      std::vector<std::string> cells = {
          std::to_string(count), std::to_string(width),
          number(operations(s, true, false) / operations({4, 16, 4096, width, 1}, true, false), 3)};
      for (const bool backward : {false, true}) {
        std::vector<Candidate> candidates = {
            candidate(
                "cudnn", backward, [&] { return cudnn(in, true); }, {in.q[0], in.k[0], in.v}, in.direction),
            candidate("hkt", backward, [&] { return ours(in, true); }, in.all, in.direction)};
        if (backward) {
          const auto plain = candidates[1].work;
          candidates.push_back({"deterministic", [plain] {
                                  at::globalContext().setDeterministicAlgorithms(true, false);
                                  plain();
                                  at::globalContext().setDeterministicAlgorithms(false, false);
                                }});
        }
        const Timings t(candidates, quick ? 5 : 11, wait);
        cells.push_back(ratio(t, "hkt", "cudnn"));
        if (backward) cells.push_back(ratio(t, "deterministic", "hkt"));
      }
      table.add(cells);
    }
  return table;
}

Table cuda_attention_float32(bool quick) {
  Table table("hkt::attention on CUDA, L = 3, float32: ratio to HKT via concatenated SDPA",
              {"B, H, T, D", "mask", "pass", "ms", "to concatenated", "to standard SDPA"});
  for (const int64_t width : {32, 64, 128})
    for (const bool causal : {false, true})
      for (const bool backward : {false, true}) {
        const Shape s{4, 8, 2048, width};
        const Inputs in(s, at::kFloat, at::kCUDA);
        const Timings t({candidate(
                             "hkt", backward, [&] { return ours(in, causal); }, in.all, in.direction),
                         candidate(
                             "concatenated", backward, [&] { return concatenated(in, causal); }, in.all, in.direction),
                         candidate(
                             "standard", backward,
                             [&] { return at::scaled_dot_product_attention(in.q[0], in.k[0], in.v, {}, 0, causal); },
                             {in.q[0], in.k[0], in.v}, in.direction)},
                        quick ? 3 : 9, wait);
        table.add({text(s), causal ? "causal" : "full", backward ? "forward+backward" : "forward",
                   number(t.seconds("hkt") * 1e3, 2), ratio(t, "hkt", "concatenated"), ratio(t, "hkt", "standard")});
      }
  return table;
}

Table cuda_attention_long(bool quick) {
  Table table(
      "hkt::attention on CUDA, L = 3, bf16, causal: long sequences (B = 1, H = 16, D = 128), memory beyond the inputs",
      {"T", "forward ms", "forward+backward ms", "inputs GiB", "forward GiB", "forward+backward GiB"});
  for (const int64_t length : {16384, 131072}) {
    if (quick && length > 16384) break;
    const Inputs in({1, 16, length, 128}, at::kBFloat16, at::kCUDA);
    const auto gibibytes = [](int64_t bytes) { return number(static_cast<double>(bytes) / (1 << 30), 2); };
    int64_t inputs = 0;
    for (const auto& tensor : in.all) inputs += static_cast<int64_t>(tensor.nbytes());
    std::vector<std::string> times, memory = {gibibytes(inputs)};
    for (const bool backward : {false, true}) {
      const auto work = candidate("hkt", backward, [&] { return ours(in, true); }, in.all, in.direction);
      times.push_back(number(Timings({work}, 3, wait).seconds("hkt") * 1e3, 1));
      memory.push_back(gibibytes(peak_bytes(work.work)));
    }
    table.add({std::to_string(length), times[0], times[1], memory[0], memory[1], memory[2]});
  }
  return table;
}

Table cuda_attention_grouped(bool quick) {
  Table table("Grouped key heads on CUDA, L = 3, bf16, causal (B = 4, H = 16): time over that with all heads",
              {"T", "D", "key heads", "forward", "forward+backward"});
  for (const int64_t length : {1024, 4096})
    for (const int64_t width : {64, 128})
      for (const int64_t group : {4, 16}) {
        const Inputs in({4, 16, length, width}, at::kBFloat16, at::kCUDA);
        const Inputs shared({4, 16, length, width, 3, group}, at::kBFloat16, at::kCUDA);
        std::vector<std::string> cells = {std::to_string(length), std::to_string(width), std::to_string(16 / group)};
        for (const bool backward : {false, true}) {
          const Timings t({candidate(
                               "all", backward, [&] { return ours(in, true); }, in.all, in.direction),
                           candidate(
                               "shared", backward, [&] { return ours(shared, true); }, shared.all, in.direction)},
                          quick ? 5 : 15, wait);
          cells.push_back(ratio(t, "shared", "all"));
        }
        table.add(cells);
      }
  return table;
}

Table cuda_attention_wide_heads(bool quick) {
  Table table("hkt::attention on CUDA beyond D = 128, L = 3, bf16: ratio of its time to FlashAttention-2's",
              {"B, H, T, D", "mask", "pass", "ms", "TFLOP/s", "to FlashAttention-2"});
  for (const int64_t width : {192, 256})
    for (const int64_t length : {1024, 4096})
      for (const bool causal : {false, true})
        for (const bool backward : {false, true}) {
          const Shape s{16384 / length, 8, length, width};
          const Inputs in(s, at::kBFloat16, at::kCUDA);
          const Timings t(
              {candidate(
                   "hkt", backward, [&] { return ours(in, causal); }, in.all, in.direction),
               candidate(
                   "flash", backward, [&] { return flash(in, causal); }, {in.q[0], in.k[0], in.v}, in.direction)},
              quick ? 5 : 11, wait);
          table.add({text(s), causal ? "causal" : "full", backward ? "forward+backward" : "forward",
                     number(t.seconds("hkt") * 1e3, 3),
                     number(operations(s, causal, backward) / t.seconds("hkt") / 1e12, 0), ratio(t, "hkt", "flash")});
        }
  return table;
}

}  // namespace hkt::bench
