// SPDX-License-Identifier: Apache-2.0
// hkt::attention_extend and hkt::decode against their definition, against one pass over the whole sequence, and their promises.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "compare.h"
#include "extend_cases.h"
#include "hkt/ops.h"
#include "hkt/reference.h"
#include "memory_meter.h"

namespace hkt::testing {
namespace {

using Output = std::tuple<at::Tensor, at::Tensor>;

Output extend(const ExtendInputs& in) { return hkt::attention_extend(in.q, in.k, in.v, in.weights, in.ends); }

const std::vector<std::pair<int64_t, int64_t>> widths = {{64, 64}, {32, 32}, {1, 1},     {17, 5},   {8, 72},
                                                         {40, 24}, {3, 130}, {256, 256}, {128, 128}};

void expect_definition(const ExtendCase& c, at::ScalarType type, double tolerance) {
  const auto inputs = make_extend_inputs(c, type, c.queries);
  const auto exact = inputs.to(at::kDouble);
  const auto [out, lse] = extend(inputs);
  const auto [expected, expected_lse] =
      reference::attention_extend(exact.q, exact.k, exact.v, exact.weights, exact.ends);
  const auto what = ::testing::PrintToString(c) + ", " + c10::toString(type);
  expect_close(out, expected, tolerance, what + ", out");
  expect_close(lse, expected_lse, type == at::kDouble ? tolerance : 1e-4, what + ", lse");
}

TEST(Extend, MatchesTheDefinition) {
  for (const auto& c : extend_cases(widths)) {
    expect_definition(c, at::kDouble, 1e-12);
    expect_definition(c, at::kFloat, 1e-5);
    expect_definition(c, at::kBFloat16, 2e-2);
    expect_definition(c, at::kHalf, 4e-3);
  }
}

// Every length modulo 2^(L − 1), each sequence at its own phase.
TEST(Extend, DecodingTokenByTokenIsOnePassOverTheWhole) {
  for (const int64_t levels : {1, 2, 3, 5})
    for (const bool keeps_scores : {false, true}) {
      GrowingSequences growing(3, 2, 2, 90, 16, levels, at::kDouble);
      const auto& caches = growing.caches;
      const auto whole = std::get<0>(
          hkt::attention(growing.all.q, growing.all.k, growing.all.v, growing.all.weights, /*causal=*/true));
      growing.append({1, 8, 21}, 1);
      for (int step = 0; step < 68; ++step) {
        const bool refresh = step == 0;
        const auto out = keeps_scores && levels > 1
                             ? std::get<0>(hkt::decode(caches.q, caches.k, caches.v, caches.weights, caches.ends,
                                                       growing.coarse, {}, refresh))
                             : std::get<0>(extend(caches));
        for (int64_t b = 0; b < 3; ++b)
          expect_close(out[b].select(1, 0), whole[b].select(1, caches.ends[b].item<int64_t>() - 1), 1e-12,
                       "levels " + std::to_string(levels) + ", step " + std::to_string(step));
        growing.append({1, 1, 1}, 1);
      }
    }
}

TEST(Extend, ChunksOfAnySizeAreOnePass) {
  for (const int64_t chunk : {1, 2, 5, 16, 33, 100})
    for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
      GrowingSequences growing(2, 2, 2, 300, 32, 4, type);
      const auto whole = std::get<0>(
          hkt::attention(growing.all.q, growing.all.k, growing.all.v, growing.all.weights, /*causal=*/true));
      for (int64_t first = 0; first + chunk <= 300; first += chunk) {
        growing.append({chunk, chunk}, chunk);
        expect_close(std::get<0>(extend(growing.caches)), whole.narrow(2, first, chunk), tolerance,
                     "chunk " + std::to_string(chunk) + " at " + std::to_string(first));
      }
    }
}

TEST(Extend, TokensMayBeTakenBack) {
  GrowingSequences growing(2, 1, 2, 120, 16, 4, at::kDouble);
  const auto& caches = growing.caches;
  const auto whole =
      std::get<0>(hkt::attention(growing.all.q, growing.all.k, growing.all.v, growing.all.weights, /*causal=*/true));
  growing.append({40, 61}, 1);
  for (int step = 0; step < 40; ++step) {
    const bool takes_back = step % 7 == 6;
    if (takes_back) {
      growing.truncate({caches.ends[0].item<int64_t>() - 4, caches.ends[1].item<int64_t>() - 5});
      growing.append({1, 1}, 1);
    }
    const auto [out, lse] = hkt::decode(caches.q, caches.k, caches.v, caches.weights, caches.ends, growing.coarse, {},
                                        takes_back || step == 0);
    for (int64_t b = 0; b < 2; ++b)
      expect_close(out[b].select(1, 0), whole[b].select(1, caches.ends[b].item<int64_t>() - 1), 1e-12,
                   "step " + std::to_string(step));
    growing.append({1, 1}, 1);
  }
}

// Every type, width and level that decode takes: its kept scores give the result of attention_extend.
TEST(Extend, KeptScoresAreThoseOfTheKeys) {
  size_t number = 0;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t levels : {2, 3, 5, 8})
      for (const int64_t group : {1, 3}) {
        const auto [width, value_width] = widths[number++ % widths.size()];
        static_cast<void>(value_width);
        GrowingSequences growing(2, 2, group, 150, width, levels, type);
        const auto& caches = growing.caches;
        growing.append({100, 5}, 1);
        for (int step = 0; step < 40; ++step) {
          const auto [out, lse] =
              hkt::decode(caches.q, caches.k, caches.v, caches.weights, caches.ends, growing.coarse, {}, step == 0);
          const auto exact = caches.to(at::kDouble);
          const auto [expected, expected_lse] =
              reference::attention_extend(exact.q, exact.k, exact.v, exact.weights, exact.ends);
          const auto what = std::string(c10::toString(type)) + ", L " + std::to_string(levels) + ", group " +
                            std::to_string(group) + ", step " + std::to_string(step);
          expect_close(out, expected, type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-5 : 2e-2, what);
          expect_close(lse, expected_lse, type == at::kDouble ? 1e-12 : 1e-4, what + ", lse");
          growing.append({1, 1}, 1);
        }
      }
}

TEST(Extend, CachesWithoutRoomGiveNothing) {
  for (const int64_t queries : {1, 16, 40}) {
    const auto [out, lse] = extend(make_extend_inputs({{0, 0}, 2, 2, queries, 64, 64, 3}, at::kFloat, 4));
    EXPECT_EQ(out.count_nonzero().item<int64_t>(), 0);
    EXPECT_TRUE(lse.isneginf().all().item<bool>());
  }
}

// A sequence has the same bits alone, in a larger cache, and for any number of threads.
TEST(Extend, BitsOfASequenceAreItsOwn) {
  const int threads = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const int64_t queries : {1, 4, 40}) {
      const ExtendCase c{{900, 3, 0, 257, 512, 1300}, 2, 2, queries, 64, 64, 3};
      const auto inputs = make_extend_inputs(c, type, 3);
      const auto [out, lse] = extend(inputs);
      for (int64_t b = 0; b < 6; ++b) {
        const auto [own_out, own_lse] = extend(inputs.sequence(b));
        EXPECT_TRUE(own_out[0].equal(out[b]) && own_lse[0].equal(lse[b])) << type << ", sequence " << b;
      }
      auto larger = inputs;
      for (auto& level : larger.k) level = at::constant_pad_nd(level, {0, 0, 0, 3 * level.size(2) + 5});
      larger.v = at::constant_pad_nd(larger.v, {0, 0, 0, 3 * larger.v.size(2) + 5});
      EXPECT_TRUE(std::get<0>(extend(larger)).equal(out)) << type << ", n " << queries << ", larger caches";
      for (const int count : {1, 2, 3}) {
        at::set_num_threads(count);
        const auto [again, again_lse] = extend(inputs);
        EXPECT_TRUE(again.equal(out) && again_lse.equal(lse)) << type << ", " << count << " threads";
      }
      at::set_num_threads(threads);
    }
}

TEST(Extend, AThousandRepeatsHaveTheSameBits) {
  const auto inputs = make_extend_inputs({{1100, 64, 7}, 2, 2, 1, 64, 64, 3}, at::kFloat, 5);
  const auto [out, lse] = extend(inputs);
  for (int i = 0; i < 1000; ++i) {
    const auto [again, again_lse] = extend(inputs);
    ASSERT_TRUE(again.equal(out) && again_lse.equal(lse)) << "repeat " << i;
  }
}

TEST(Extend, CachesMayHaveMoreThanTwoGibielements) {
  if (sanitized) GTEST_SKIP() << "the address sanitizer would need more memory than there is";
  if (std::getenv("ATEN_CPU_CAPABILITY"))
    GTEST_SKIP() << "with the best instruction set alone: it needs too much memory";
  if (available_bytes() < int64_t{8} << 30) GTEST_SKIP() << "needs 8 GiB of memory";
  const auto far = make_far_end(3, at::kBFloat16, at::kCPU);
  const auto [out, lse] = extend(far.whole);
  const auto [expected, expected_lse] = extend(far.end);
  expect_close(out, expected.to(at::kDouble), 1e-2, "out");
  expect_close(lse, expected_lse.to(at::kDouble), 1e-3, "lse");
}

}  // namespace
}  // namespace hkt::testing
