// SPDX-License-Identifier: Apache-2.0
// hkt::attention_extend and hkt::decode on a GPU: against the definition in float64, for every family of kernels, and what only a
// GPU can get wrong. Skipped, aloud, where there is no GPU.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "compare.h"
#include "extend_cases.h"
#include "hkt/ops.h"
#include "hkt/reference.h"

namespace hkt::testing {
namespace {

const at::Device gpu(at::kCUDA, 0);

class ExtendCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU here";
  }
};

using Output = std::tuple<at::Tensor, at::Tensor>;

Output extend(const ExtendInputs& in) { return hkt::attention_extend(in.q, in.k, in.v, in.weights, in.ends); }

void expect_definition(const ExtendCase& c, at::ScalarType type, double tolerance) {
  const auto inputs = make_extend_inputs(c, type, c.queries, gpu);
  const auto exact = inputs.to(at::kDouble);
  const auto [out, lse] = extend(inputs);
  const auto [expected, expected_lse] =
      reference::attention_extend(exact.q, exact.k, exact.v, exact.weights, exact.ends);
  const auto what = ::testing::PrintToString(c) + ", " + c10::toString(type);
  expect_close(out, expected, tolerance, what + ", out");
  // Tensor cores sum the rounded probabilities of narrow heads.
  const double lse_tolerance = type == at::kDouble ? tolerance : type == at::kFloat ? 1e-4 : tolerance / 10;
  expect_close(lse, expected_lse, lse_tolerance, what + ", lse");
}

TEST_F(ExtendCuda, MatchesTheDefinition) {
  for (const auto& c : extend_cases({{64, 64}, {32, 32}, {1, 1}, {17, 5}, {8, 72}, {40, 24}, {3, 130}, {256, 256}})) {
    expect_definition(c, at::kDouble, 1e-11);
    expect_definition(c, at::kFloat, 3e-5);
  }
}

TEST_F(ExtendCuda, MatchesTheDefinitionOnTensorCores) {
  for (const auto& c : extend_cases({{64, 64}, {128, 128}, {32, 32}, {8, 72}, {256, 256}, {96, 16}, {192, 192}}))
    for (const auto& [type, tolerance] : {std::pair{at::kBFloat16, 2e-2}, {at::kHalf, 4e-3}})
      expect_definition(c, type, tolerance);
}

// Chunks of a prompt, with which other kernels work than with a few queries.
TEST_F(ExtendCuda, LargeChunks) {
  for (const int64_t queries : {100, 256, 300})
    for (const int64_t levels : {1, 3, 5})
      for (const auto& [type, tolerance] : {std::pair{at::kBFloat16, 2e-2}, {at::kFloat, 3e-5}})
        expect_definition({{700, 13, 300, 0, 513}, 2, 2, queries, 64, 64, levels, 11, levels == 3}, type, tolerance);
}

TEST_F(ExtendCuda, DecodingTokenByTokenIsOnePassOverTheWhole) {
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-11}, {at::kBFloat16, 3e-2}})
    for (const int64_t levels : {2, 3, 5}) {
      GrowingSequences growing(3, 2, 2, 400, 64, levels, type, gpu);
      const auto& caches = growing.caches;
      const auto whole = std::get<0>(
          hkt::attention(growing.all.q, growing.all.k, growing.all.v, growing.all.weights, /*causal=*/true));
      growing.append({1, 8, 250}, 1);
      for (int step = 0; step < 40; ++step) {
        const auto out = std::get<0>(hkt::decode(caches.q, caches.k, caches.v, caches.weights, caches.ends,
                                                 growing.coarse, {}, /*refresh=*/step == 0));
        for (int64_t b = 0; b < 3; ++b)
          expect_close(out[b].select(1, 0), whole[b].select(1, caches.ends[b].item<int64_t>() - 1), tolerance,
                       "levels " + std::to_string(levels) + ", step " + std::to_string(step));
        growing.append({1, 1, 1}, 1);
      }
    }
}

TEST_F(ExtendCuda, BitsOfASequenceAreItsOwn) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t queries : {1, 4, 40, 200}) {
      const ExtendCase c{{900, 3, 0, 257, 512, 1300}, 2, 2, queries, 64, 64, 3};
      const auto inputs = make_extend_inputs(c, type, 3, gpu);
      const auto [out, lse] = extend(inputs);
      for (int64_t b = 0; b < 6; ++b) {
        const auto [own_out, own_lse] = extend(inputs.sequence(b));
        EXPECT_TRUE(own_out[0].equal(out[b]) && own_lse[0].equal(lse[b])) << type << ", sequence " << b;
      }
      auto larger = inputs;
      for (auto& level : larger.k) level = at::constant_pad_nd(level, {0, 0, 0, 3 * level.size(2) + 5});
      larger.v = at::constant_pad_nd(larger.v, {0, 0, 0, 3 * larger.v.size(2) + 5});
      EXPECT_TRUE(std::get<0>(extend(larger)).equal(out)) << type << ", n " << queries << ", larger caches";
    }
}

TEST_F(ExtendCuda, AThousandRepeatsHaveTheSameBits) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto inputs = make_extend_inputs({{2100, 64, 7}, 2, 2, 1, 64, 64, 3}, type, 5, gpu);
    const auto [out, lse] = extend(inputs);
    auto different = at::zeros({}, at::TensorOptions(at::kLong).device(gpu));
    for (int i = 0; i < 1000; ++i) {
      const auto [again, again_lse] = extend(inputs);
      different += again.ne(out).sum() + again_lse.ne(lse).sum();
    }
    EXPECT_EQ(different.item<int64_t>(), 0) << type;
  }
}

// Values that the CPU refuses: nothing outside of the caches is read, and no row of q that is not there.
TEST_F(ExtendCuda, EndsAreClamped) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto inputs = make_extend_inputs({{300, 300}, 2, 2, 1, 64, 64, 3}, type, 6, gpu);
    const auto expected = std::get<0>(extend(inputs));
    inputs.ends = at::tensor({int64_t{1} << 40, int64_t{-5}}, at::kLong).to(gpu);
    const auto [out, lse] = extend(inputs);
    EXPECT_TRUE(out[0].equal(expected[0]));
    EXPECT_EQ(out[1].count_nonzero().item<int64_t>(), 0);
    EXPECT_TRUE(lse[1].isneginf().all().item<bool>());
  }
}

// Lengths live on the device: one graph serves every step.
TEST_F(ExtendCuda, AGraphServesEveryStep) {
  GrowingSequences growing(2, 2, 2, 200, 64, 3, at::kBFloat16, gpu);
  auto& caches = growing.caches;
  growing.append({100, 37}, 1);
  const auto q = caches.q;  // the graph reads these
  const auto step = [&] {
    return std::get<0>(hkt::decode(q, caches.k, caches.v, caches.weights, caches.ends, growing.coarse));
  };
  std::get<0>(hkt::decode(q, caches.k, caches.v, caches.weights, caches.ends, growing.coarse, {}, true));
  at::cuda::CUDAGraph graph;
  at::Tensor out;
  {
    const c10::cuda::CUDAStreamGuard on_stream(at::cuda::getStreamFromPool());
    step();
    graph.capture_begin();
    out = step();
    graph.capture_end();
  }
  for (int i = 0; i < 12; ++i) {
    growing.append({1, 1}, 1);
    for (size_t level = 0; level < q.size(); ++level) q[level].copy_(caches.q[level]);
    graph.replay();
    const auto expected = std::get<0>(extend(caches));
    expect_close(out, expected.to(at::kDouble), 2e-2, "step " + std::to_string(i));
  }
}

TEST_F(ExtendCuda, CachesMayHaveMoreThanTwoGibielements) {
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (free < size_t{16} << 30) GTEST_SKIP() << "needs 16 GiB of GPU memory";
  for (const auto type : {at::kBFloat16, at::kFloat})  // the kernels of plain, too
    for (const int64_t queries : {3, 300}) {           // few, split over keys; many, in tiles
      const auto far = make_far_end(queries, type, gpu);
      const auto [out, lse] = extend(far.whole);
      const auto [expected, expected_lse] = extend(far.end);
      const auto what = std::string(c10::toString(type)) + ", n " + std::to_string(queries);
      expect_close(out, expected.to(at::kDouble), 1e-2, what + ", out");
      expect_close(lse, expected_lse.to(at::kDouble), 1e-3, what + ", lse");
    }
}

}  // namespace
}  // namespace hkt::testing
