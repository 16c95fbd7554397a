// SPDX-License-Identifier: Apache-2.0
// The attention methods that HKT is compared with: each against its definition, key by key in float64, with gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "hkt/modules.h"

namespace {

using hkt::AttentionKind;
using hkt::Mask;
using hkt::ModelConfig;
using hkt::testing::expect_close;

constexpr std::int64_t heads = 2, head_width = 4, width = heads * head_width, longest = 40;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct Peer {
  std::string name;
  std::function<void(ModelConfig&)> set;
};

const std::vector<Peer> peers = {
    {"window", [](ModelConfig& c) { c.attention = AttentionKind::window, c.window = 2, c.globals = 1; }},
    {"window without globals",
     [](ModelConfig& c) { c.attention = AttentionKind::window, c.window = 0, c.globals = 0; }},
    {"bigbird",
     [](ModelConfig& c) { c.attention = AttentionKind::bigbird, c.window = 1, c.globals = 2, c.random_keys = 3; }},
    {"linformer", [](ModelConfig& c) { c.attention = AttentionKind::linformer, c.features = 5; }},
    {"performer", [](ModelConfig& c) { c.attention = AttentionKind::performer, c.features = 7; }},
    {"h1d of 2", [](ModelConfig& c) { c.attention = AttentionKind::h1d, c.block_size = 2; }},
    {"h1d of 4", [](ModelConfig& c) { c.attention = AttentionKind::h1d, c.block_size = 4; }},
};

ModelConfig config_of(const Peer& peer, bool causal) {
  ModelConfig config;
  config.levels = 1;
  config.heads = heads;
  config.width = width;
  config.max_length = longest;
  config.positions = hkt::Positions::none;
  peer.set(config);
  config.mask = causal ? Mask::causal : Mask::none;
  return config;
}

hkt::HierarchicalAttention make(const ModelConfig& config) {
  torch::manual_seed(7);
  hkt::HierarchicalAttention attention(config);
  attention->to(at::kDouble);
  const at::NoGradGuard no_grad;
  attention->query_key[0]->weight.mul_(3);  // scores that matter
  return attention;
}

// One head of one sequence without padding: rows [n, head width].
struct Rows {
  at::Tensor q, k, v;
  std::int64_t count() const { return q.size(0); }
};

// SplitMix64, as its authors give it, of (i + 1) steps from zero; its upper 32 bits as a share of one.
double share(std::uint64_t i) {
  std::uint64_t state = 0;
  state += (i + 1) * 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z = z ^ (z >> 31);
  return std::ldexp(static_cast<double>(z >> 32), -32);
}

bool sees(const ModelConfig& config, std::int64_t i, std::int64_t j, std::int64_t count) {
  const bool causal = config.mask == Mask::causal;
  if (causal && j > i) return false;
  if (std::abs(i - j) <= config.window || i < config.globals || j < config.globals) return true;
  if (config.attention != AttentionKind::bigbird) return false;
  for (std::int64_t r = 0; r < config.random_keys; ++r) {
    const auto draw = share(static_cast<std::uint64_t>(i * config.random_keys + r));
    if (static_cast<std::int64_t>(draw * static_cast<double>(causal ? i + 1 : count)) == j) return true;
  }
  return false;
}

at::Tensor mean_around(const at::Tensor& rows, std::int64_t i, std::int64_t level) {
  const auto size = std::int64_t{1} << level, begin = i / size * size;
  return rows.slice(0, begin, std::min(begin + size, rows.size(0))).mean(0);
}

// The finest level at which the blocks of two tokens are the same or neighbours.
std::int64_t level_of(std::int64_t i, std::int64_t j, std::int64_t block) {
  for (std::int64_t level = 0;; ++level) {
    const auto size = block << level;
    if (std::abs(i / size - j / size) <= 1) return level;
  }
}

// The score of a key, or nothing.
at::Tensor score(const ModelConfig& config, const Rows& rows, std::int64_t i, std::int64_t j) {
  auto none = at::full({}, -infinity, at::kDouble);
  const double scale = 1 / std::sqrt(static_cast<double>(head_width));
  if (config.attention != AttentionKind::h1d)
    return sees(config, i, j, rows.count()) ? rows.q[i].dot(rows.k[j]) * scale : none;
  const bool causal = config.mask == Mask::causal;
  if (causal && j > i) return none;
  const auto level = level_of(i, j, config.block_size);
  const auto q = causal ? rows.q[i] : mean_around(rows.q, i, level);
  return q.dot(mean_around(rows.k, j, level)) * scale;
}

at::Tensor softmax_row(const ModelConfig& config, const Rows& rows, std::int64_t i) {
  std::vector<at::Tensor> scores;
  for (std::int64_t j = 0; j < rows.count(); ++j) scores.push_back(score(config, rows, i, j));
  return at::matmul(at::softmax(at::stack(scores), 0), rows.v);
}

at::Tensor linformer_row(const Rows& rows, const at::Tensor& reduction, std::int64_t i) {
  const auto shares = reduction.slice(1, 0, rows.count());
  const auto k = at::mm(shares, rows.k), v = at::mm(shares, rows.v);
  return at::matmul(at::softmax(at::mv(k, rows.q[i]) / std::sqrt(static_cast<double>(head_width)), 0), v);
}

at::Tensor performer_row(const ModelConfig& config, const Rows& rows, const at::Tensor& features, std::int64_t i) {
  const auto exponent = [&](const at::Tensor& row) {
    const auto x = row / std::sqrt(std::sqrt(static_cast<double>(head_width)));
    return at::mv(features, x) - x.dot(x) / 2;
  };
  const auto of_query = exponent(rows.q[i]);
  const auto phi = at::exp(of_query - of_query.max().detach()) + 1e-6;
  at::Tensor sum = at::zeros({}, at::kDouble), out = at::zeros({head_width}, at::kDouble);
  for (std::int64_t j = 0; j < (config.mask == Mask::causal ? i + 1 : rows.count()); ++j) {
    const auto weight = phi.dot(at::exp(exponent(rows.k[j])) + 1e-6);
    sum = sum + weight;
    out = out + weight * rows.v[j];
  }
  return out / sum;
}

at::Tensor row_of(const ModelConfig& config, const hkt::HierarchicalAttention& attention, const Rows& rows,
                  std::int64_t i) {
  if (config.attention == AttentionKind::linformer) return linformer_row(rows, attention->reduction, i);
  if (config.attention == AttentionKind::performer) return performer_row(config, rows, attention->random_features, i);
  return softmax_row(config, rows, i);
}

at::Tensor defined(const ModelConfig& config, hkt::HierarchicalAttention& attention, const at::Tensor& x,
                   const std::vector<std::int64_t>& lengths) {
  const auto& weight = attention->query_key[0]->weight;
  std::vector<at::Tensor> sequences;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    const auto count = lengths[static_cast<std::size_t>(b)];
    const auto part = [&](const at::Tensor& own, std::int64_t head) {
      return at::mm(x[b].slice(0, 0, count), own.slice(0, head * head_width, (head + 1) * head_width).t());
    };
    std::vector<at::Tensor> merged;
    for (std::int64_t i = 0; i < x.size(1); ++i) {
      std::vector<at::Tensor> row;
      for (std::int64_t head = 0; head < heads; ++head) {
        const Rows rows{part(weight.slice(0, 0, width), head), part(weight.slice(0, width), head),
                        part(attention->value->weight, head)};
        row.push_back(i < count ? row_of(config, attention, rows, i) : at::zeros({head_width}, at::kDouble));
      }
      merged.push_back(at::cat(row));
    }
    sequences.push_back(at::mm(at::stack(merged), attention->output->weight.t()));
  }
  return at::stack(sequences);
}

std::vector<at::Tensor> gradients(hkt::HierarchicalAttention& attention, const at::Tensor& x, const at::Tensor& out) {
  auto wanted = attention->parameters();
  wanted.push_back(x);
  const auto direction = at::cos(at::arange(out.numel(), at::kDouble)).view_as(out);
  return torch::autograd::grad({(out * direction).sum()}, wanted, {}, {}, false, true);
}

void expect_the_definition(const Peer& peer, bool causal, std::int64_t length, bool padded) {
  const auto config = config_of(peer, causal);
  auto attention = make(config);
  const auto what =
      peer.name + (causal ? ", causal" : "") + (padded ? ", padded" : "") + ", T = " + std::to_string(length);
  const auto x = at::randn({2, length, width}, at::kDouble).requires_grad_();
  const std::vector<std::int64_t> lengths = {length, padded ? length / 2 : length};
  const auto given = padded ? std::optional(at::tensor(lengths, at::kLong)) : std::nullopt;
  const auto out = attention->forward(x, given), expected = defined(config, attention, x, lengths);
  expect_close(out, expected, 1e-11, what);
  const auto actual = gradients(attention, x, out), wanted = gradients(attention, x, expected);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), wanted[i].defined()) << what;
    if (actual[i].defined()) expect_close(actual[i], wanted[i], 1e-9, what + ", gradient " + std::to_string(i));
  }
}

TEST(Peers, AreTheirDefinitions) {
  for (const auto& peer : peers) {
    for (const bool causal : {false, true}) {
      if (causal && peer.name == "linformer") continue;
      for (const std::int64_t length : {1, 2, 5, 13}) expect_the_definition(peer, causal, length, true);
      expect_the_definition(peer, causal, 18, false);
    }
  }
}

// Values of later tokens and of padding are far away, so that the smallest weight on one of them shows.
TEST(Peers, NothingLeaks) {
  for (const auto& peer : peers) {
    for (const bool causal : {false, true}) {
      if (causal && peer.name == "linformer") continue;
      auto attention = make(config_of(peer, causal));
      const auto x = at::randn({1, longest - 3, width}, at::kDouble);
      for (const std::int64_t end : {1, 6, 16, 31}) {
        auto changed = x.clone();
        changed.slice(1, end).add_(100);
        const auto lengths = causal ? std::optional<at::Tensor>() : std::optional(at::tensor({end}, at::kLong));
        const auto before = attention->forward(x, lengths), after = attention->forward(changed, lengths);
        expect_close(after.slice(1, 0, end), before.slice(1, 0, end), 1e-12, peer.name);
        if (causal) continue;
        EXPECT_EQ(after.slice(1, end).abs().max().item<double>(), 0) << peer.name;
      }
    }
  }
}

// Where nothing is left out, window, BigBird and H-Transformer-1D are standard attention.
TEST(Peers, WithRoomForAllTheyAreStandardAttention) {
  const auto standard_config = config_of({"standard", [](ModelConfig&) {}}, false);
  auto standard = make(standard_config);
  const auto x = at::randn({2, 23, width}, at::kDouble);
  for (const auto kind : {AttentionKind::window, AttentionKind::bigbird, AttentionKind::h1d}) {
    auto config = standard_config;
    config.attention = kind;
    config.window = longest;
    config.block_size = 12;
    expect_close(make(config)->forward(x), standard->forward(x), 1e-12, hkt::name_of(kind));
  }
}

TEST(Peers, FeaturesOfPerformerAreOrthogonalAndEstimateTheSoftmaxKernel) {
  auto config = config_of({"performer", [](ModelConfig& c) { c.attention = AttentionKind::performer; }}, false);
  config.features = 4096;
  config.heads = 1;
  config.width = 32;
  const auto features = hkt::HierarchicalAttention(config)->random_features.to(at::kDouble);
  const auto block = features.slice(0, config.width, 2 * config.width);
  expect_close(at::mm(block, block.t()), at::eye(config.width, at::kDouble) * config.width, 1e-6,
               "a block of features");
  torch::manual_seed(3);
  const auto x = at::randn({6, config.width}, at::kDouble) * 0.15, y = at::randn({6, config.width}, at::kDouble) * 0.15;
  const auto phi = [&](const at::Tensor& rows) {
    return at::exp(at::mm(rows, features.t()) - rows.square().sum(1, true) / 2);
  };
  const auto estimate = at::mm(phi(x), phi(y).t()) / static_cast<double>(config.features);
  EXPECT_LT((estimate / at::mm(x, y.t()).exp() - 1).abs().max().item<double>(), 0.1);
}

}  // namespace
