// SPDX-License-Identifier: Apache-2.0
// hkt::attention on the CPU compared with standard attention and with HKT in plain PyTorch.
#include <ATen/ATen.h>

#include "attention_forms.h"
#include "harness.h"

namespace hkt::bench {
namespace {

constexpr int64_t longest_materialised = 1024;

struct Comparison {
  Inputs inputs, half_inputs;
  std::vector<Candidate> candidates;

  // plain_forms: also HKT in plain PyTorch. The materialised form is left out for long sequences, where its time would be
  // dominated by memory allocation.
  Comparison(const Shape& s, bool causal, bool backward, bool plain_forms)
      : inputs(s, at::kFloat, at::kCPU), half_inputs(s, at::kBFloat16, at::kCPU) {
    const auto add = [&](const std::string& name, const Forward& forward, const std::vector<at::Tensor>& wanted,
                         const at::Tensor& direction) {
      candidates.push_back(candidate(name, backward, forward, wanted, direction));
    };
    const Inputs& in = inputs;
    const Inputs& half = half_inputs;
    add(
        "standard", [&in, causal] { return at::scaled_dot_product_attention(in.q[0], in.k[0], in.v, {}, 0, causal); },
        {in.q[0], in.k[0], in.v}, in.direction);
    add("hkt", [&in, causal] { return ours(in, causal); }, in.all, in.direction);
    add("bf16", [&half, causal] { return ours(half, causal); }, half.all, half.direction);
    if (!plain_forms) return;
    add("concatenated", [&in, causal] { return concatenated(in, causal); }, in.all, in.direction);
    if (s.length > longest_materialised) return;
    add("materialised", [&in, causal] { return materialised(in, causal); }, in.all, in.direction);
  }
  Comparison(const Comparison&) = delete;
};

int rounds_for(const Shape& s, bool quick) {
  const double work = operations(s, false, true);
  return quick ? 3 : work > 1e11 ? 5 : work > 2e10 ? 9 : 21;
}

std::string ratio(const Timings& t, const std::string& name, const std::string& to) {
  return t.has(name) && t.has(to) ? number(t.ratio(name, to), 2) : "–";
}

}  // namespace

Table attention_shapes(bool quick) {
  Table table("hkt::attention, L = 3, float32: ratio of its time to others'",
              {"B, H, T, D", "mask", "pass", "ms", "GFLOP/s", "to standard SDPA", "to concatenated SDPA",
               "to materialised", "bf16 to float32"});
  std::vector<Shape> shapes = {{64, 4, 16, 32},  {64, 4, 32, 32},  {64, 4, 48, 32},   {64, 4, 128, 32},
                               {4, 4, 1024, 32}, {1, 8, 4096, 64}, {1, 4, 4096, 128}, {1, 1, 4096, 64}};
  if (quick) shapes = {{64, 4, 48, 32}, {4, 4, 1024, 32}, {1, 4, 2048, 64}, {1, 4, 2048, 128}};
  for (const Shape& s : shapes)
    for (const bool causal : {false, true})
      for (const bool backward : {false, true}) {
        const Comparison comparison(s, causal, backward, true);
        const Timings t(comparison.candidates, rounds_for(s, quick));
        table.add({text(s), causal ? "causal" : "full", backward ? "forward+backward" : "forward",
                   number(t.seconds("hkt") * 1e3, 2),
                   number(operations(s, causal, backward) / t.seconds("hkt") / 1e9, 0), ratio(t, "hkt", "standard"),
                   ratio(t, "hkt", "concatenated"), ratio(t, "hkt", "materialised"), ratio(t, "bf16", "hkt")});
      }
  return table;
}

Table attention_growth_with_length(bool quick) {
  Table table("hkt::attention, L = 3, float32, causal: growth with the length (B = 1, H = 2, D = 64)",
              {"T", "forward ms", "to standard SDPA", "forward+backward ms", "to standard SDPA"});
  for (const int64_t length : {512, 1024, 2048, 4096, 8192, 16384}) {
    if (quick && length > 2048) break;
    const Shape s{1, 2, length, 64};
    std::vector<std::string> cells = {std::to_string(length)};
    for (const bool backward : {false, true}) {
      const Comparison comparison(s, true, backward, false);
      const Timings t(comparison.candidates, rounds_for(s, quick));
      cells.push_back(number(t.seconds("hkt") * 1e3, 2));
      cells.push_back(ratio(t, "hkt", "standard"));
    }
    table.add(cells);
  }
  return table;
}

Table attention_growth_with_levels(bool quick) {
  Table table(
      "hkt::attention, float32: growth with the levels (B = 4, H = 4, T = 1024, D = 32), ratio to standard SDPA",
      {"L", "multiply-adds", "forward full", "forward causal", "forward+backward full", "forward+backward causal"});
  for (int64_t levels = 1; levels <= (quick ? 3 : 5); ++levels) {
    const Shape s{4, 4, 1024, 32, levels};
    const Shape one{4, 4, 1024, 32, 1};
    std::vector<std::string> cells = {std::to_string(levels),
                                      number(operations(s, false, false) / operations(one, false, false), 3) + " / " +
                                          number(operations(s, false, true) / operations(one, false, true), 3)};
    for (const bool backward : {false, true})
      for (const bool causal : {false, true}) {
        const Comparison comparison(s, causal, backward, false);
        cells.push_back(ratio(Timings(comparison.candidates, rounds_for(s, quick)), "hkt", "standard"));
      }
    table.add(cells);
  }
  return table;
}

Table attention_memory(bool quick) {
  Table table("hkt::attention, L = 3, float32, causal: peak memory beyond the inputs, MiB (B = 1, H = 4, D = 64)",
              {"T", "inputs", "forward", "standard SDPA", "forward+backward", "standard SDPA", "materialised"});
  const auto mib = [](int64_t bytes) { return number(static_cast<double>(bytes) / (1 << 20), 1); };
  for (const int64_t length : {1024, 4096, 16384}) {
    if (quick && length > 4096) break;
    const Shape s{1, 4, length, 64};
    std::vector<std::string> cells = {std::to_string(length)};
    for (const bool backward : {false, true}) {
      const Comparison comparison(s, true, backward, true);
      if (!backward) {
        int64_t inputs = 0;
        for (const auto& tensor : comparison.inputs.all) inputs += static_cast<int64_t>(tensor.nbytes());
        cells.push_back(mib(inputs));
      }
      cells.push_back(mib(peak_bytes(comparison.candidates[1].work)));
      cells.push_back(mib(peak_bytes(comparison.candidates[0].work)));
      if (backward)
        cells.push_back(length > longest_materialised ? "–" : mib(peak_bytes(comparison.candidates.back().work)));
    }
    table.add(cells);
  }
  return table;
}

}  // namespace hkt::bench
