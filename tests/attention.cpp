// SPDX-License-Identifier: Apache-2.0
// hkt::attention against its two oracles, against SDPA where the two must agree, and the promises of its definition.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>
#include <cstdlib>

#include "attention_cases.h"
#include "compare.h"
#include "concatenated.h"
#include "hkt/ops.h"
#include "hkt/reference.h"
#include "memory_meter.h"

namespace hkt::testing {
namespace {

using Output = std::tuple<at::Tensor, at::Tensor>;

Output fast(const AttentionInputs& in, bool causal) {
  return hkt::attention(in.q, in.k, in.v, in.weights, causal, in.lengths, {}, in.start);
}

std::string describe(const AttentionCase& c, const std::string& what) {
  return ::testing::PrintToString(c) + ", " + what;
}

template <class Oracle>
void expect_matches(Oracle oracle, const AttentionCase& c, at::ScalarType type, double tolerance, int64_t seed) {
  const auto inputs = make_inputs(c, type, seed);
  const auto exact = inputs.to(at::kDouble);
  const auto [out, lse] = fast(inputs, c.causal);
  const auto [expected, expected_lse] =
      oracle(exact.q, exact.k, exact.v, exact.weights, c.causal, exact.lengths, {}, exact.start);
  expect_close(out, expected, tolerance, describe(c, "out"));
  expect_close(lse, expected_lse, tolerance, describe(c, "lse"));
  const auto direction = at::randn(out.sizes(), at::kDouble).to(type);
  const auto lse_direction = at::randn(lse.sizes(), at::kDouble).to(lse.scalar_type());
  const auto grads = torch::autograd::grad({out, lse}, inputs.all(), {direction, lse_direction});
  const auto expected_grads = torch::autograd::grad({expected, expected_lse}, exact.all(),
                                                    {direction.to(at::kDouble), lse_direction.to(at::kDouble)});
  for (size_t i = 0; i < grads.size(); ++i)
    // A weight's gradient is a sum over the whole sequence, and grows with it.
    expect_close(grads[i], expected_grads[i], i + 1 == grads.size() ? 20 * tolerance : tolerance,
                 describe(c, "gradient of " + inputs.name(i)));
}

TEST(Attention, MatchesTheDefinitionInFloat64) {
  for (const auto& c : attention_cases()) expect_matches(reference::attention, c, at::kDouble, 1e-12, c.length);
}

TEST(Attention, MatchesTheConcatenatedFormInFloat64) {
  for (const auto& c : attention_cases())
    expect_matches(reference::attention_concatenated, c, at::kDouble, 1e-12, c.length + 1);
}

TEST(Attention, QueriesMayBeAnywhereAndShareKeys) {
  for (const auto& c : window_cases({32, 17, 64, 8, 40})) {
    expect_matches(reference::attention, c, at::kDouble, 1e-12, c.length + 3);
    expect_matches(reference::attention_concatenated, c, at::kDouble, 1e-12, c.length + 4);
    expect_matches(reference::attention, c, at::kFloat, 1e-5, c.length + 5);
  }
}

// In bfloat16 rows are packed in pairs, one of which may lie before the window.
TEST(Attention, WindowsInBFloat16) {
  for (const auto& c : window_cases({32, 17, 64})) {
    const auto inputs = make_inputs(c, at::kBFloat16, c.start);
    const auto exact = inputs.to(at::kDouble);
    const auto [out, lse] = fast(inputs, c.causal);
    const auto [expected, expected_lse] =
        reference::attention(exact.q, exact.k, exact.v, exact.weights, c.causal, exact.lengths, {}, exact.start);
    expect_close(out, expected, 2e-2, describe(c, "out"));
    expect_close(lse, expected_lse, 1e-4, describe(c, "lse"));
    const auto direction = at::randn_like(out);
    const auto grads = torch::autograd::grad({out}, inputs.all(), {direction});
    const auto expected_grads = torch::autograd::grad({expected}, exact.all(), {direction.to(at::kDouble)});
    for (size_t i = 0; i < grads.size(); ++i)
      expect_close(grads[i], expected_grads[i], i + 1 == grads.size() ? 0.5 : 6e-2,
                   describe(c, "gradient of " + inputs.name(i)));
  }
}

// The chunks of a sequence, merged by their lse with gradients, are the whole: what a ring of devices does with keys.
TEST(Attention, PartsOfTheKeysMergeByTheirLse) {
  const AttentionCase c{2, 2, 96, 16, 24, 3};
  const auto inputs = make_inputs(c, at::kDouble, 12);
  const auto part = [&](int64_t first, int64_t count) {
    AttentionInputs keys = inputs;
    for (int64_t level = 0; level < c.levels; ++level)
      keys.k[level] = inputs.k[level].narrow(2, first >> level, count >> level);
    keys.v = inputs.v.narrow(2, first, count);
    // As many queries as keys at a time: rows of the other half of the queries come from a second call.
    std::vector<at::Tensor> outs, lses;
    for (const int64_t start : {0, 48}) {
      for (int64_t level = 0; level < c.levels; ++level)
        keys.q[level] = inputs.q[level].narrow(2, start >> level, 48 >> level);
      const auto [out, lse] = fast(keys, false);
      outs.push_back(out);
      lses.push_back(lse);
    }
    return Output(at::cat(outs, 2), at::cat(lses, 2));
  };
  const auto [out1, lse1] = part(0, 48);
  const auto [out2, lse2] = part(48, 48);
  const auto lse = at::logaddexp(lse1, lse2);
  const auto merged = out1 * (lse1 - lse).exp().unsqueeze(3) + out2 * (lse2 - lse).exp().unsqueeze(3);
  const auto [whole, whole_lse] = fast(inputs, false);
  expect_close(merged, whole, 1e-12, "out");
  expect_close(lse, whole_lse, 1e-12, "lse");
  const auto direction = at::randn_like(whole);
  const auto grads = torch::autograd::grad({merged}, inputs.all(), {direction});
  const auto whole_grads = torch::autograd::grad({whole}, inputs.all(), {direction});
  for (size_t i = 0; i < grads.size(); ++i) expect_close(grads[i], whole_grads[i], 1e-11, inputs.name(i));
}

TEST(Attention, MatchesTheDefinitionInFloat32) {
  for (const auto& c : attention_cases()) expect_matches(reference::attention, c, at::kFloat, 1e-5, c.length + 2);
}

// Against float64, our error is at most twice that of PyTorch's own attention in the same type: SDPA for one level, SDPA on
// the concatenated features for three.
TEST(Attention, LowPrecisionIsWithinTwiceTheErrorOfPyTorch) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const int64_t levels : {1, 3})
      for (const int64_t length : {33, 256, 700})
        for (const bool causal : {false, true}) {
          const AttentionCase c{2, 2, length, 64, 64, levels, causal};
          const auto inputs = make_inputs(c, type, length);
          const auto exact = inputs.to(at::kDouble);
          const auto theirs = inputs.to(type);
          const auto ours = std::get<0>(fast(inputs, causal));
          const auto expected = std::get<0>(reference::attention(exact.q, exact.k, exact.v, exact.weights, causal));
          const auto sdpa = concatenated(theirs.q, theirs.k, theirs.v, theirs.weights, causal);
          const auto direction = at::randn_like(expected).to(type);
          const auto our_grads = torch::autograd::grad({ours}, inputs.all(), {direction});
          const auto their_grads = torch::autograd::grad({sdpa}, theirs.all(), {direction}, {}, false, true);
          const auto exact_grads = torch::autograd::grad({expected}, exact.all(), {direction.to(at::kDouble)});
          const auto error = [](const at::Tensor& a, const at::Tensor& b) {
            return (a.to(at::kDouble) - b).norm().item<double>();
          };
          EXPECT_LE(error(ours, expected), 2 * error(sdpa, expected)) << describe(c, "out") << ", " << type;
          for (size_t i = 0; i + 1 < our_grads.size(); ++i)
            EXPECT_LE(error(our_grads[i], exact_grads[i]), 2 * error(their_grads[i], exact_grads[i]))
                << describe(c, "gradient of " + inputs.name(i)) << ", " << type;
        }
}

TEST(Attention, RowsMayLieBeyondTwoGibielements) {
  if (sanitized) GTEST_SKIP() << "the address sanitizer would need more memory than there is";
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kBFloat16, 3e-2}})
    expect_matches(reference::attention, {1, 1, 140, 24, 24, 3, true, true, Layout::far_rows}, type, tolerance, 8);
}

// All heads are one, expanded, so that results alone take memory.
TEST(Attention, ResultsMayHaveMoreThanTwoGibielements) {
  if (sanitized) GTEST_SKIP() << "the address sanitizer would need more memory than there is";
  if (std::getenv("ATEN_CPU_CAPABILITY"))
    GTEST_SKIP() << "with the best instruction set alone: it needs too much memory";
  if (available_bytes() < int64_t{14} << 30) GTEST_SKIP() << "needs 14 GiB of memory";
  const int64_t batch = 1050, heads = 500, length = 16, width = 8, value_width = 256;
  ASSERT_GT(batch * heads * length * value_width, int64_t{1} << 31);
  const AttentionCase one{1, 1, length, width, value_width, 2, true};
  const auto inputs = make_inputs(one, at::kBFloat16, 3);
  const auto expand = [&](const at::Tensor& tensor) {
    return tensor.detach().expand({batch, heads, -1, -1}).requires_grad_();
  };
  AttentionInputs expanded{{}, {}, expand(inputs.v), inputs.weights.detach().expand({heads, 2}).requires_grad_(),
                           {}, 0};
  for (const auto& level : inputs.q) expanded.q.push_back(expand(level));
  for (const auto& level : inputs.k) expanded.k.push_back(expand(level));
  const auto direction = at::randn({1, 1, length, value_width}, at::kBFloat16);

  const auto expect_all_heads = [&](const at::Tensor& all, const at::Tensor& first, const std::string& what) {
    bool equal = true;
    for (int64_t b = batch - 1; b >= 0; b -= 20) equal = equal && all[b].equal(first[0].expand(all[b].sizes()));
    EXPECT_TRUE(equal) << what;
  };
  const auto [out, lse] = fast(inputs, true);
  const auto [all_out, all_lse] = fast(expanded, true);
  expect_all_heads(all_out, out, "out");
  expect_all_heads(all_lse, lse, "lse");
  const auto grads = torch::autograd::grad({out}, inputs.all(), {direction});
  const auto all_grads =
      torch::autograd::grad({all_out}, expanded.all(), {direction.expand({batch, heads, length, value_width})});
  for (size_t i = 0; i + 1 < grads.size(); ++i)
    expect_all_heads(all_grads[i], grads[i], "gradient of " + inputs.name(i));
}

TEST(Attention, OneLevelAndOneHotWeightsAreStandardAttention) {
  for (const bool causal : {false, true})
    for (const int64_t levels : {1, 3}) {
      const AttentionCase c{2, 3, 201, 32, 48, levels, causal};
      auto inputs = make_inputs(c, at::kDouble, 5);
      inputs.weights = at::zeros({3, levels}, at::kDouble);
      inputs.weights.select(1, 0).fill_(1);
      const auto standard = at::scaled_dot_product_attention(inputs.q[0], inputs.k[0], inputs.v, {}, 0, causal);
      expect_close(std::get<0>(fast(inputs, causal)), standard, 1e-13, describe(c, "one-hot"));
    }
}

// Zero weights hide a level from the output, not from the gradient of its weight.
TEST(Attention, AWeightOfZeroHasItsGradient) {
  const AttentionCase c{1, 2, 50, 16, 16, 3};
  auto inputs = make_inputs(c, at::kDouble, 6);
  inputs.weights = at::tensor({1., 0., 0., 0., 1., 0.}, at::kDouble).view({2, 3}).requires_grad_();
  const auto gradient = [&](const Output& output) {
    return torch::autograd::grad({std::get<0>(output).pow(2).sum()}, {inputs.weights})[0];
  };
  const auto expected = gradient(reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights));
  EXPECT_GT(expected.abs().min().item<double>(), 1e-6);
  expect_close(gradient(fast(inputs, false)), expected, 1e-12, "weights");
}

// Values, scores and outputs of the future must not matter: positions from `from` on are replaced in every input.
AttentionInputs with_other_positions(const AttentionInputs& in, int64_t from) {
  auto other = in.to(in.v.scalar_type());
  const at::NoGradGuard no_grad;
  for (auto* list : {&other.q, &other.k})
    for (size_t level = 0; level < list->size(); ++level) {
      const int64_t first = level_rows(from, static_cast<int64_t>(level));  // the first coarse row that starts there
      auto& rows = (*list)[level];
      rows.narrow(2, first, rows.size(2) - first).uniform_(-100, 100);
    }
  other.v.narrow(2, from, other.v.size(2) - from).uniform_(-100, 100);
  return other;
}

TEST(Attention, TheFutureChangesNothingUnderTheCausalMask) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t from : {1, 7, 100, 256, 299}) {
      const AttentionCase c{2, 2, 300, 32, 32, 4, true};
      const auto inputs = make_inputs(c, type, from);
      const auto [out, lse] = fast(inputs, true);
      const auto [other_out, other_lse] = fast(with_other_positions(inputs, from), true);
      EXPECT_TRUE(out.narrow(2, 0, from).equal(other_out.narrow(2, 0, from))) << "from " << from;
      EXPECT_TRUE(lse.narrow(2, 0, from).equal(other_lse.narrow(2, 0, from))) << "from " << from;
      EXPECT_FALSE(out.narrow(2, from, 300 - from).equal(other_out.narrow(2, from, 300 - from)));
    }
}

TEST(Attention, PaddingChangesNothingAndStaysZero) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const bool causal : {false, true})
      for (const int64_t valid : {0, 1, 13, 99, 130}) {
        const AttentionCase c{1, 2, 131, 24, 40, 4, causal};
        auto inputs = make_inputs(c, type, valid);
        inputs.lengths = at::tensor({valid}, at::kLong);
        auto other = with_other_positions(inputs, valid);
        other.lengths = inputs.lengths;
        const auto [out, lse] = fast(inputs, causal);
        const auto [other_out, other_lse] = fast(other, causal);
        EXPECT_TRUE(out.equal(other_out)) << "valid " << valid;
        EXPECT_TRUE(lse.equal(other_lse)) << "valid " << valid;
        EXPECT_EQ(out.narrow(2, valid, 131 - valid).count_nonzero().item<int64_t>(), 0);
        EXPECT_TRUE(lse.narrow(2, valid, 131 - valid).isneginf().all().item<bool>());
        const auto direction = at::randn_like(out);
        const auto grads = torch::autograd::grad({out}, inputs.all(), {direction});
        const auto other_grads = torch::autograd::grad({other_out}, other.all(), {direction});
        for (size_t i = 0; i < grads.size(); ++i) {
          EXPECT_TRUE(grads[i].equal(other_grads[i])) << "valid " << valid << ", gradient of " << inputs.name(i);
          if (grads[i].dim() < 4) continue;
          const int64_t first = level_rows(valid, i < 8 ? static_cast<int64_t>(i % 4) : 0);
          EXPECT_EQ(grads[i].narrow(2, first, grads[i].size(2) - first).count_nonzero().item<int64_t>(), 0)
              << "valid " << valid << ", gradient of " << inputs.name(i);
        }
      }
}

TEST(Attention, TheSameBitsOnRepeatAndForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const bool causal : {false, true})
      // Few heads share each head between threads; many do not.
      for (const int64_t heads : {1, 3, 20}) {
        const AttentionCase c{1, heads, 1100, 32, 32, 3, causal};
        const auto inputs = make_inputs(c, type, heads);
        const auto direction = at::randn({1, heads, 1100, 32}, at::kFloat).to(type);
        std::vector<at::Tensor> first;
        for (const int count : {1, 2, 2, 3}) {
          at::set_num_threads(count);
          const auto [out, lse] = fast(inputs, causal);
          auto results = torch::autograd::grad({out}, inputs.all(), {direction});
          results.push_back(out);
          results.push_back(lse);
          if (first.empty()) first = results;
          for (size_t i = 0; i < results.size(); ++i)
            EXPECT_TRUE(results[i].equal(first[i])) << count << " threads, " << heads << " heads, result " << i;
        }
      }
  at::set_num_threads(threads);
}

TEST(Attention, HugeScoresGiveNoNaN) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const double size : {1e4, -1e4}) {
      const AttentionCase c{1, 1, 70, 16, 16, 3};
      auto inputs = make_inputs(c, type, 8);
      {
        const at::NoGradGuard no_grad;
        for (auto& level : inputs.q) level.fill_(std::sqrt(std::abs(size) / 4));
        for (auto& level : inputs.k) level.fill_(std::copysign(std::sqrt(std::abs(size) / 4), size));
        inputs.k[0].narrow(2, 3, 1).neg_();  // one key whose score is as huge on the other side
      }
      const auto [out, lse] = fast(inputs, false);
      EXPECT_TRUE(out.isfinite().all().item<bool>() && lse.isfinite().all().item<bool>()) << type << " " << size;
      for (const auto& grad : torch::autograd::grad({out}, inputs.all(), {at::ones_like(out)}))
        EXPECT_TRUE(grad.isfinite().all().item<bool>()) << type << " " << size;
    }
}

TEST(Attention, OutputsKeepTheLayoutOfTheirInputs) {
  const AttentionCase c{2, 3, 20, 8, 8, 2, false, false, Layout::heads_inside};
  const auto inputs = make_inputs(c, at::kFloat, 9);
  const auto out = std::get<0>(fast(inputs, false));
  EXPECT_EQ(out.strides(), inputs.v.strides());
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  const auto grads = torch::autograd::grad({out}, inputs.all(), {at::ones_like(out)});
  EXPECT_EQ(grads[0].strides(), inputs.q[0].strides());
}

TEST(Attention, AnyScaleMayBeGiven) {
  const auto inputs = make_inputs({1, 2, 40, 8, 8, 3}, at::kDouble, 10);
  for (const double scale : {0.0, 0.3, -2.0})
    expect_close(std::get<0>(hkt::attention(inputs.q, inputs.k, inputs.v, inputs.weights, false, {}, scale)),
                 std::get<0>(reference::attention(inputs.q, inputs.k, inputs.v, inputs.weights, false, {}, scale)),
                 1e-12, "scale " + std::to_string(scale));
}

TEST(Attention, WorksInsideAParallelRegion) {
  const auto inputs = make_inputs({1, 2, 600, 16, 16, 3}, at::kFloat, 11);
  const at::NoGradGuard no_grad;
  const auto expected = std::get<0>(fast(inputs, true));
  std::vector<at::Tensor> results(4);
  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) results[i] = std::get<0>(fast(inputs, true));
  });
  for (const auto& result : results) EXPECT_TRUE(result.equal(expected));
}

}  // namespace
}  // namespace hkt::testing
