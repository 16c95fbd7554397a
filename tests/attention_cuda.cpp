// SPDX-License-Identifier: Apache-2.0
// hkt::attention on a GPU: against the definition in float64, on the shapes of the CPU's tests and on those of the
// tensor-core kernels, and what only a GPU can get wrong. Skipped, aloud, where there is no GPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/cuda.h>

#include <functional>

#include "attention_cases.h"
#include "compare.h"
#include "hkt/ops.h"
#include "hkt/reference.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

class AttentionCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

using Output = std::tuple<at::Tensor, at::Tensor>;

Output fast(const AttentionInputs& in, bool causal) {
  return hkt::attention(in.q, in.k, in.v, in.weights, causal, in.lengths, {}, in.start);
}

// out, lse and all gradients for one direction.
struct Results {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
};
template <class Function>
Results results_of(const AttentionInputs& in, const at::Tensor& direction, Function function) {
  const auto [out, lse] = function(in);
  Results results;
  results.tensors = {out.detach(), lse.detach()};
  results.names = {"out", "lse"};
  // The first numbers of each row serve as the direction of lse.
  const auto lse_direction = direction.select(3, 0).to(lse.scalar_type());
  const auto grads = torch::autograd::grad({out, lse}, in.all(), {direction.to(out.scalar_type()), lse_direction});
  for (size_t i = 0; i < grads.size(); ++i) {
    results.tensors.push_back(grads[i]);
    results.names.push_back("gradient of " + in.name(i));
  }
  return results;
}
Results fast_results(const AttentionInputs& in, const at::Tensor& direction, bool causal) {
  return results_of(in, direction, [&](const AttentionInputs& x) { return fast(x, causal); });
}
Results exact_results(const AttentionInputs& in, const at::Tensor& direction, bool causal) {
  return results_of(in, direction, [&](const AttentionInputs& x) {
    return reference::attention(x.q, x.k, x.v, x.weights, causal, x.lengths, {}, x.start);
  });
}

at::Tensor direction_for(const AttentionCase& c) {
  return at::randn({c.batch, c.heads * c.group, c.query_count(), c.value_width},
                   at::TensorOptions(at::kDouble).device(gpu));
}

std::string describe(const AttentionCase& c, const std::string& what) {
  return ::testing::PrintToString(c) + ", " + what;
}

void expect_exact(const AttentionCase& c, at::ScalarType type, double tolerance, int64_t seed) {
  const auto inputs = make_inputs(c, type, seed, gpu);
  const auto direction = direction_for(c).to(type);
  const auto ours = fast_results(inputs, direction, c.causal);
  const auto exact = exact_results(inputs.to(at::kDouble), direction, c.causal);
  for (size_t i = 0; i < ours.tensors.size(); ++i)
    expect_close(ours.tensors[i], exact.tensors[i], i + 1 == ours.tensors.size() ? 20 * tolerance : tolerance,
                 describe(c, ours.names[i]));
}

TEST_F(AttentionCuda, MatchesTheDefinitionInFloat64) {
  for (const auto& c : attention_cases()) expect_exact(c, at::kDouble, 1e-11, c.length);
}

TEST_F(AttentionCuda, QueriesMayBeAnywhereAndShareKeys) {
  for (const auto& c : window_cases({32, 17, 64, 8, 40, 130})) {
    expect_exact(c, at::kDouble, 1e-11, c.length + 2);
    expect_exact(c, at::kFloat, 3e-5, c.length + 3);
  }
}

TEST_F(AttentionCuda, MatchesTheDefinitionInFloat32) {
  for (const auto& c : attention_cases()) expect_exact(c, at::kFloat, 3e-5, c.length + 1);
}

// How much each gradient changes because ⟨out, grad_out⟩ is taken from a rounded out, as FlashAttention takes it: by the gradient
// of Σ error · lse. It matters where a sequence has a few tokens, whose dS nearly cancel in coarse blocks.
std::vector<double> effects_of_rounding_out(const AttentionInputs& exact_inputs, const at::Tensor& error, bool causal) {
  const auto& in = exact_inputs;
  const auto [out, lse] = reference::attention(in.q, in.k, in.v, in.weights, causal, in.lengths, {}, in.start);
  const auto grads = torch::autograd::grad({lse}, in.all(), {error}, {}, false, /*allow_unused=*/true);
  std::vector<double> norms;
  for (const auto& grad : grads) norms.push_back(grad.defined() ? grad.norm().item<double>() : 0);
  return norms;
}

// ‖ours − exact‖ is at most twice the error of rounding the exact result, plus half a unit of rounding for what is rounded
// on the way (probabilities and their gradients). Gradients of q and k are sums in which much cancels, so that unit is one
// of the largest gradient among the levels and of that of v; seen are up to 0.3 of it for random inputs, more for short ones. And
// what follows from the rounding of out.
void expect_low_precision(const AttentionCase& c, at::ScalarType type, int64_t seed) {
  const auto inputs = make_inputs(c, type, seed, gpu);
  const auto direction = direction_for(c).to(type);
  const auto ours = fast_results(inputs, direction, c.causal);
  const auto exact = exact_results(inputs.to(at::kDouble), direction, c.causal);
  const double unit = type == at::kHalf ? 1e-3 : 8e-3;
  const auto finite = [](const at::Tensor& tensor) { return tensor.masked_fill(tensor.isneginf(), 0); };
  const auto norm = [&](size_t i) { return finite(exact.tensors[i]).norm().item<double>(); };
  const auto error = finite(ours.tensors[0].to(at::kDouble)).sub(exact.tensors[0]).mul(direction).sum(3);
  const auto effects = effects_of_rounding_out(inputs.to(at::kDouble), error, c.causal);
  double largest = 0;
  for (size_t i = 2; i + 2 < ours.tensors.size(); ++i) largest = std::max(largest, norm(i));
  for (size_t i = 0; i < ours.tensors.size(); ++i) {
    if (ours.tensors[i].numel() == 0) continue;
    const auto expected = exact.tensors[i];
    EXPECT_TRUE(ours.tensors[i].isneginf().equal(expected.isneginf()))
        << describe(c, ours.names[i]) << ": infinite in the wrong places";
    const auto difference = [&](const at::Tensor& tensor) {
      return finite(tensor.to(at::kDouble)).sub(finite(expected)).norm().item<double>();
    };
    const double rounding = difference(expected.to(ours.tensors[i].scalar_type()));
    const bool is_of_a_level = i >= 2 && i + 2 < ours.tensors.size(), is_of_weights = i + 1 == ours.tensors.size();
    const double way = is_of_a_level   ? 0.75 * largest + 0.25 * norm(ours.tensors.size() - 2)
                       : is_of_weights ? 0.5 * norm(i) + 1.5 * static_cast<double>(c.levels) * largest
                                       : 0.5 * norm(i);
    const double allowed = 2 * rounding + unit * (way + 0.1) + (i >= 2 ? effects[i - 2] : 0);
    EXPECT_LE(difference(ours.tensors[i]), allowed)
        << describe(c, ours.names[i]) << ", " << type << ", norm " << norm(i) << ", rounding alone " << rounding;
  }
}

TEST_F(AttentionCuda, LowPrecisionOnTheShapesOfTheCpu) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& c : attention_cases()) expect_low_precision(c, type, c.length + 2);
}

TEST_F(AttentionCuda, LowPrecisionOnTensorCoreShapes) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& c : tensor_core_cases()) expect_low_precision(c, type, c.length + 3);
}

TEST_F(AttentionCuda, LowPrecisionOfQueriesAnywhere) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& c : window_cases({64, 32, 128, 40, 96, 24})) expect_low_precision(c, type, c.length + 4);
}

TEST_F(AttentionCuda, LowPrecisionBeyondWidth128) {
  for (const auto& c : window_cases({256, 136, 200})) expect_low_precision(c, at::kBFloat16, c.length + 5);
  for (const int64_t length : {1, 64, 129, 300, 1000})
    for (const bool causal : {false, true})
      for (const int64_t levels : {1, 3, 5, 8})
        expect_low_precision({2, 2, length, 256, 256, levels, causal, length % 2 == 0, Layout::heads_inside},
                             levels == 3 ? at::kHalf : at::kBFloat16, length);
}

TEST_F(AttentionCuda, LowPrecisionWithMoreThanThreeLevels) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& c : deep_cases()) expect_low_precision(c, type, c.length + 4);
}

TEST_F(AttentionCuda, LongSequencesAndManyHeads) {
  for (const bool causal : {false, true})
    for (const int64_t width : {64, 128}) {
      expect_low_precision({1, 2, 4000, width, width, 3, causal, true, Layout::heads_inside}, at::kBFloat16, width);
      expect_low_precision({40, 33, 130, width, width, 3, causal, true, Layout::heads_inside}, at::kBFloat16, width);
      expect_low_precision({10, 16, 1000, width, width, 3, causal, true, Layout::heads_inside}, at::kBFloat16, width);
    }
  expect_low_precision({700, 100, 9, 32, 32, 3, false, true}, at::kBFloat16, 5);  // more than 65,535 blocks
  for (const bool causal : {false, true})
    for (const int64_t width : {32, 64, 128}) {
      expect_low_precision({1, 2, 4200, width, width, 5, causal, true, Layout::heads_inside}, at::kBFloat16, width);
      expect_low_precision({20, 33, 130, width, width, 8, causal, true, Layout::heads_inside}, at::kBFloat16, width);
    }
}

// Every element is written: the memory that results come from is filled with NaN first.
void expect_every_element_written(at::ScalarType type) {
  std::vector<AttentionCase> cases;
  for (const int64_t width : {24, 32, 64, 128})
    for (const int64_t length : {1, 77, 300, 515})
      cases.push_back({2, 2, length, width, width, length % 4 == 0 ? 6 : 3, length % 2 == 1, true});
  for (const int64_t width : {72, 120})
    for (const int64_t levels : {2, 8}) cases.push_back({2, 2, 260, width, width, levels, levels == 2, true});
  for (const int64_t width : {32, 64, 128, 256})
    for (const int64_t start : {3, 130, 259})  // keys that no query sees have gradients too
      cases.push_back({2, 2, 515, width, width, start == 3 ? 5 : 3, start != 130, start == 3, Layout::heads_first, 2,
                       start, start == 259 ? 1 : 70});
  for (const auto& c : cases) {
    const auto inputs = make_inputs(c, type, c.length, gpu);
    const auto direction = direction_for(c).to(type);
    for (const bool deterministic : {false, true}) {
      at::globalContext().setDeterministicAlgorithms(deterministic, false);
      c10::cuda::CUDACachingAllocator::emptyCache();
      std::vector<at::Tensor> poison;
      for (int i = 0; i < 64; ++i)
        poison.push_back(at::full({1 << (10 + i % 12)}, NAN, at::TensorOptions(at::kFloat).device(gpu)));
      poison.clear();
      const auto results = fast_results(inputs, direction, c.causal);
      for (size_t i = 0; i < results.tensors.size(); ++i)
        EXPECT_FALSE(results.tensors[i].isnan().any().item<bool>()) << describe(c, results.names[i]);
    }
  }
}

TEST_F(AttentionCuda, EveryElementIsWritten) { expect_every_element_written(at::kBFloat16); }

TEST_F(AttentionCuda, EveryElementIsWrittenInFloat32) { expect_every_element_written(at::kFloat); }

void expect_equal_bits(const Results& found, const Results& expected, const AttentionCase& c) {
  for (size_t i = 0; i < expected.tensors.size(); ++i)
    ASSERT_TRUE(found.tensors[i].equal(expected.tensors[i])) << describe(c, expected.names[i]);
}

TEST_F(AttentionCuda, TheSameBitsOnEveryRunWhenAskedFor) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto expect_same = [](const AttentionCase& c, int repeats) {
    const auto inputs = make_inputs(c, at::kBFloat16, c.width, gpu);
    const auto direction = direction_for(c).to(at::kBFloat16);
    const auto first = fast_results(inputs, direction, c.causal);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      SCOPED_TRACE(repeat);
      expect_equal_bits(fast_results(inputs, direction, c.causal), first, c);
      if (HasFatalFailure()) return;
    }
  };
  for (const int64_t width : {32, 64, 128, 72})
    for (const bool causal : {false, true}) {
      for (const int64_t levels : {1, 2, 3, 5})
        expect_same({2, 2, 700, width, width, levels, causal, true, Layout::heads_inside},
                    width == 64 && levels == 3 ? 1000 : 60);
      // More blocks than run at once, and groups of heads, the last of them a smaller one.
      expect_same({1, 19, 2200, width, width, 8, causal}, 20);
      expect_same({3, 19, 1100, width, width, 3, causal, true}, 20);
      expect_same({1, 2, 4300, width, width, 5, causal}, 10);
    }
}

TEST_F(AttentionCuda, AFixedOrderOfAdditionsGivesTheSameResults) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  for (const bool causal : {false, true})
    for (const int64_t width : {32, 64, 128}) {
      for (const int64_t levels : {1, 2, 3})
        expect_low_precision({2, 9, 1300, width, width, levels, causal, true, Layout::heads_inside}, at::kBFloat16,
                             width);
      expect_low_precision({1, 11, 1300, width, width, 6, causal, true}, at::kHalf, width);
    }
}

// Blocks in a fixed order wait for others: those must run, whatever else is on the GPU.
TEST_F(AttentionCuda, SeveralPassesInAFixedOrderAtOnce) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  for (const int64_t width : {64, 128})
    for (const auto& [levels, causal] : {std::pair{3, false}, {3, true}, {5, false}, {5, true}}) {
      const AttentionCase c{1, 3, 3000, width, width, levels, causal};
      const auto inputs = make_inputs(c, at::kBFloat16, width, gpu);
      const auto direction = direction_for(c).to(at::kBFloat16);
      const auto expected = fast_results(inputs, direction, causal);
      c10::cuda::device_synchronize();
      std::vector<Results> found;
      std::vector<at::cuda::CUDAStream> streams;
      for (int i = 0; i < 4; ++i) streams.push_back(at::cuda::getStreamFromPool());
      for (int i = 0; i < 24; ++i) {
        const c10::cuda::CUDAStreamGuard on_stream(streams[i % streams.size()]);
        found.push_back(fast_results(inputs, direction, causal));
      }
      c10::cuda::device_synchronize();
      for (const auto& results : found) expect_equal_bits(results, expected, c);
    }
}

TEST_F(AttentionCuda, PaddingAndTheFutureChangeNothing) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  for (const int64_t width : {32, 64, 128})
    for (const bool causal : {false, true})
      for (const int64_t valid : {0, 1, 99, 130, 256, 299}) {
        const AttentionCase c{1, 2, 300, width, width, valid % 2 == 0 ? 5 : 3, causal};
        auto inputs = make_inputs(c, at::kBFloat16, valid, gpu);
        const auto direction = direction_for(c).to(at::kBFloat16);
        if (!causal) inputs.lengths = at::tensor({valid}, at::kLong).to(gpu);
        auto other = inputs.to(at::kBFloat16);
        {
          const at::NoGradGuard no_grad;
          const auto disturb = [&](at::Tensor& rows, int64_t level) {
            const int64_t first = level_rows(valid, level);
            rows.narrow(2, first, rows.size(2) - first).uniform_(-100, 100);
          };
          for (size_t level = 0; level < other.q.size(); ++level) {
            disturb(other.q[level], static_cast<int64_t>(level));
            disturb(other.k[level], static_cast<int64_t>(level));
          }
          disturb(other.v, 0);
        }
        const auto [out, lse] = fast(inputs, causal);
        const auto [other_out, other_lse] = fast(other, causal);
        EXPECT_TRUE(out.narrow(2, 0, valid).equal(other_out.narrow(2, 0, valid))) << describe(c, "out");
        EXPECT_TRUE(lse.narrow(2, 0, valid).equal(other_lse.narrow(2, 0, valid))) << describe(c, "lse");
        if (causal) continue;
        EXPECT_EQ(out.narrow(2, valid, 300 - valid).count_nonzero().item<int64_t>(), 0);
        EXPECT_TRUE(lse.narrow(2, valid, 300 - valid).isneginf().all().item<bool>());
        const auto grads = torch::autograd::grad({out}, inputs.all(), {direction});
        const auto other_grads = torch::autograd::grad({other_out}, other.all(), {direction});
        for (size_t i = 0; i < grads.size(); ++i)
          EXPECT_TRUE(grads[i].equal(other_grads[i])) << describe(c, "gradient of " + inputs.name(i)) << valid;
      }
}

TEST_F(AttentionCuda, ResultsAreLaidOutAsTheirInputs) {
  const auto options = at::TensorOptions(at::kBFloat16).device(gpu);
  const std::function<at::Tensor()> layouts[] = {
      [&] { return at::randn({2, 3, 40, 16}, options); },
      [&] { return at::randn({2, 40, 3, 16}, options).transpose(1, 2); },
      [&] { return at::randn({2, 40, 3, 48}, options).narrow(3, 16, 16).transpose(1, 2); },  // a part of wider rows
      [&] { return at::randn({2, 3, 40, 32}, options).slice(3, 0, 32, 2); },
  };
  for (const bool deterministic : {false, true})
    for (const auto& make : layouts) {
      at::globalContext().setDeterministicAlgorithms(deterministic, false);
      const auto q = make().requires_grad_(), k = make().requires_grad_(), v = make().requires_grad_();
      const auto [out, lse] = hkt::attention({q}, {k}, v, at::ones({3, 1}, options.dtype(at::kFloat)));
      const auto expected = v.stride(3) == 1 ? at::empty_like(v) : at::empty(v.sizes(), options);
      EXPECT_EQ(out.strides(), expected.strides());
      EXPECT_EQ(lse.strides(), at::IntArrayRef({120, 40, 1}));
      for (const auto& grad : torch::autograd::grad({out}, {q, k, v}, {at::ones_like(out)}))
        EXPECT_EQ(grad.strides(), expected.strides());
    }
}

TEST_F(AttentionCuda, LengthsAreClamped) {
  const AttentionCase c{2, 2, 100, 64, 64, 3};
  auto inputs = make_inputs(c, at::kBFloat16, 1, gpu);
  inputs.lengths = at::tensor({-5, 1000}, at::kLong).to(gpu);
  const auto [out, lse] = fast(inputs, false);
  inputs.lengths = at::tensor({0, 100}, at::kLong).to(gpu);
  EXPECT_TRUE(out.equal(std::get<0>(fast(inputs, false))));
}

TEST_F(AttentionCuda, WeightsMayBeZeroOrNegativeAndScoresHuge) {
  const auto three = at::tensor({1.f, 0.f, 0.f, 0.f, -0.5f, 1.5f, 0.5f, 0.f, 0.5f, 0.f, 0.f, -1.f}).view({4, 3});
  const auto five = at::tensor({1.f,  0.f, 0.f, 0.f,  0.f, 0.f, -0.5f, 1.5f, 0.f, 0.5f,  //
                                0.5f, 0.f, 0.f, -1.f, 0.f, 0.f, 0.f,   0.f,  0.f, 1.f})
                        .view({4, 5});
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {32, 64, 128})
      for (const auto& weights : {three, five}) {
        const AttentionCase c{1, 4, 200, width, width, weights.size(1), true};
        auto inputs = make_inputs(c, type, 6, gpu);
        inputs.weights = weights.to(gpu).requires_grad_();
        const auto direction = direction_for(c).to(type);
        const auto ours = fast_results(inputs, direction, true);
        const auto exact = exact_results(inputs.to(at::kDouble), direction, true);
        for (size_t i = 0; i < ours.tensors.size(); ++i) {
          const auto difference = (ours.tensors[i].to(at::kDouble) - exact.tensors[i]).norm().item<double>();
          EXPECT_LE(difference, (type == at::kFloat ? 1e-4 : 2e-2) * (exact.tensors[i].norm().item<double>() + 0.1))
              << describe(c, ours.names[i]);
        }
        {
          const at::NoGradGuard no_grad;
          for (auto& level : inputs.q) level.mul_(100);
          for (auto& level : inputs.k) level.mul_(100);
        }
        for (const auto& tensor : fast_results(inputs, direction, true).tensors)
          EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << describe(c, "huge scores");
      }
}

TEST_F(AttentionCuda, RunsOnTheCallersStreamAndInsideAGraph) {
  for (const int64_t width : {64, 128})
    for (const int64_t levels : {3, 5}) {
      const AttentionCase c{2, 2, 260, width, width, levels, true};
      const auto inputs = make_inputs(c, at::kBFloat16, 4, gpu);
      const at::NoGradGuard no_grad;
      const auto expected = std::get<0>(fast(inputs, true));
      torch::cuda::synchronize();  // the other stream does not wait for inputs and results of this one
      const auto stream = at::cuda::getStreamFromPool();
      const c10::cuda::CUDAStreamGuard on_stream(stream);
      at::cuda::CUDAGraph graph;
      at::Tensor out;
      graph.capture_begin();
      out = std::get<0>(fast(inputs, true));
      graph.capture_end();
      out.fill_(NAN);
      graph.replay();
      stream.synchronize();
      EXPECT_TRUE(out.equal(expected)) << describe(c, "out");
    }
}

TEST_F(AttentionCuda, RowsMayLieBeyondTwoGibielements) {
  for (const int64_t levels : {3, 5})
    for (const int64_t width : {64, 128}) {
      const AttentionCase c{1, 1, 140, width, width, levels, true, true, Layout::far_rows};
      for (const auto type : {at::kBFloat16, at::kHalf}) expect_low_precision(c, type, width);
      c10::cuda::CUDACachingAllocator::emptyCache();
    }
  expect_exact({1, 1, 140, 24, 24, 3, true, true, Layout::far_rows}, at::kFloat, 3e-5, 1);
}

// The first and the last sequence of a batch of more than 2³¹ elements, forward and backward, against each by itself.
void expect_like_single_sequences(const AttentionCase& c, at::ScalarType type, double tolerance) {
  ASSERT_GT(c.batch * c.heads * c.length * c.width, int64_t{1} << 31);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto inputs = make_inputs(c, type, c.width, gpu);
  const auto direction = at::randn({c.batch, c.heads, c.length, c.value_width}, at::TensorOptions(type).device(gpu));
  const auto results = fast_results(inputs, direction, c.causal);
  for (const int64_t b : {int64_t{0}, c.batch - 1}) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.detach().narrow(0, b, 1).clone().requires_grad_();
    };
    AttentionInputs single{{}, {}, part(inputs.v), inputs.weights, {}};
    for (const auto& level : inputs.q) single.q.push_back(part(level));
    for (const auto& level : inputs.k) single.k.push_back(part(level));
    const auto expected = fast_results(single, direction.narrow(0, b, 1), c.causal);
    for (size_t i = 0; i + 1 < expected.tensors.size(); ++i) {  // the weights' gradient sums over the batch
      const auto& exact = expected.tensors[i];
      const double difference = (results.tensors[i].narrow(0, b, 1) - exact).norm().item<double>();
      EXPECT_LE(difference, tolerance * exact.norm().item<double>()) << describe(c, expected.names[i]) << ", " << b;
    }
  }
}

TEST_F(AttentionCuda, MoreThanTwoGibielements) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (free < size_t{110} << 30) GTEST_SKIP() << "needs 110 GiB of GPU memory";
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    expect_like_single_sequences({4100, 64, 128, 64, 64, 3, true}, at::kBFloat16, 1e-2);
    expect_like_single_sequences({1025, 64, 256, 128, 128, 5, false}, at::kBFloat16, 1e-2);
  }
  expect_like_single_sequences({4100, 64, 128, 64, 64, 2, true}, at::kFloat, 1e-4);
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace
}  // namespace hkt::testing
