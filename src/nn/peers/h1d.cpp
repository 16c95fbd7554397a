// SPDX-License-Identifier: Apache-2.0
// H-Transformer-1D: near keys exactly, far ones as means, the coarser the further away.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sparse.h"

namespace hkt::peers {
namespace {

// Sums over 2^l tokens, [B, heads, rows, D]; count [B or 1, 1, rows, 1]: the valid tokens among them.
struct Level {
  at::Tensor q, k, v, count;

  at::Tensor mean(const at::Tensor& sums) const { return sums / count.clamp_min(1); }
};

// The part of a softmax that one level has, at full resolution.
struct Part {
  at::Tensor highest, sum, values;
};

at::Tensor pairs(const at::Tensor& rows) { return rows.unflatten(2, {rows.size(2) / 2, 2}).sum(3); }

Level coarser(const Level& level) { return {pairs(level.q), pairs(level.k), pairs(level.v), pairs(level.count)}; }

// [B, heads, rows, D] to [B, heads, blocks, rows of a block, D].
at::Tensor in_blocks(const at::Tensor& rows, std::int64_t size) { return rows.unflatten(2, {-1, size}); }

// In place of each block those at these offsets, one after the other; beyond the ends there are zeros.
at::Tensor neighbours(const at::Tensor& blocks, const std::vector<std::int64_t>& offsets) {
  std::vector<at::Tensor> all;
  for (const auto offset : offsets) all.push_back(at::constant_pad_nd(blocks, {0, 0, 0, 0, -offset, offset}));
  return at::cat(all, 3);
}

class Hierarchy {
 public:
  Hierarchy(const Inputs& inputs, std::int64_t size)
      : size_(size), causal_(inputs.causal), scale_(1 / std::sqrt(static_cast<double>(inputs.q.size(3)))) {
    const auto length = inputs.q.size(2);
    std::int64_t unit = size;  // of the coarsest level, where there are at most two blocks
    while (length > 2 * unit) unit *= 2, ++coarse_levels_;
    padding_ = (unit - length % unit) % unit;
    const auto type = inputs.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    auto valid = at::ones({1, 1, length, 1}, inputs.q.options().dtype(type));
    if (inputs.lengths) valid = valid_rows(*inputs.lengths, inputs.q.size(2)).to(type);
    const auto padded = [&](const at::Tensor& rows) {
      return at::constant_pad_nd(rows.to(type) * valid, {0, 0, 0, padding_});
    };
    finest_ = {padded(inputs.q), padded(inputs.k), padded(inputs.v), at::constant_pad_nd(valid, {0, 0, 0, padding_})};
  }

  at::Tensor attend() const {
    std::vector<Part> parts;
    auto level = finest_;
    for (std::int64_t l = 0; l <= coarse_levels_; ++l) {
      if (l > 0) level = coarser(level);
      parts.push_back(part_of(level, l));
    }
    auto highest = parts.front().highest;
    for (const auto& part : parts) highest = at::maximum(highest, part.highest);
    at::Tensor sum, values;
    for (const auto& part : parts) {
      const auto share = (part.highest - highest).exp();
      sum = sum.defined() ? sum + share * part.sum : share * part.sum;
      values = values.defined() ? values + share * part.values : share * part.values;
    }
    return (values / (sum + sum.eq(0))).narrow(2, 0, finest_.q.size(2) - padding_);
  }

 private:
  // Which keys of the neighbouring blocks the queries of a block may see, [queries, keys]. A coarse query in the first half of its
  // block has seen the second half of the block before at a finer level, and the reverse.
  at::Tensor pattern(std::int64_t queries, std::int64_t l, const at::Device& device) const {
    const auto options = at::TensorOptions(at::kLong).device(device);
    const auto key = at::arange(size_, options).unsqueeze(0);
    const auto query = at::floor_divide(at::arange(queries, options), queries / size_).unsqueeze(1);
    const auto all = key.ge(0).expand({queries, size_}), none = all.logical_not();
    if (l == 0) return at::cat({all, causal_ ? key.le(query) : all, causal_ ? none : all}, 1);
    const auto half = size_ / 2;
    const auto before = query.ge(half).logical_or(key.lt(half)), after = query.lt(half).logical_or(key.ge(half));
    return at::cat({before, causal_ ? none : after}, 1);
  }

  Part part_of(const Level& level, std::int64_t l) const {
    const bool fine_queries = causal_ && l > 0;
    const auto queries = fine_queries ? size_ << l : size_;
    const std::vector<std::int64_t> offsets =
        l == 0 ? std::vector<std::int64_t>{-1, 0, 1} : std::vector<std::int64_t>{-1, 1};
    const auto around = [&](const at::Tensor& rows) { return neighbours(in_blocks(rows, size_), offsets); };
    const auto q = in_blocks(fine_queries ? finest_.q : level.mean(level.q), queries);
    const auto counts = around(level.count).transpose(3, 4);  // [B or 1, 1, blocks, 1, keys]
    const auto seen = counts.gt(0).logical_and(pattern(queries, l, q.device()));
    constexpr double infinity = std::numeric_limits<double>::infinity(), lowest = -1e30;
    const auto scores = (at::matmul(q, around(level.mean(level.k)).transpose(3, 4)) * scale_)
                            .masked_fill(seen.logical_not(), -infinity);
    const auto highest = scores.detach().amax({4}, true).clamp_min(lowest);  // of a row that sees nothing, too
    const auto weights = (scores - highest).exp();
    const auto fine = [&](const at::Tensor& blocks) {
      const auto rows = blocks.flatten(2, 3);
      return fine_queries ? rows : rows.repeat_interleave(std::int64_t{1} << l, 2);
    };
    return {fine(highest), fine((weights * counts).sum(4, true)), fine(at::matmul(weights, around(level.v)))};
  }

  std::int64_t size_, coarse_levels_ = 0, padding_ = 0;
  bool causal_;
  double scale_;
  Level finest_;
};

}  // namespace

at::Tensor h1d(const Inputs& inputs, std::int64_t block_size) {
  if (inputs.q.size(2) == 0) return at::zeros_like(inputs.v);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  auto out = Hierarchy(inputs, block_size).attend();
  if (inputs.lengths) out = out.masked_fill(valid_rows(*inputs.lengths, inputs.q.size(2)).logical_not(), 0);
  return out.to(inputs.v.scalar_type());
}

}  // namespace hkt::peers
