// SPDX-License-Identifier: Apache-2.0
// Indices of a decoding call, computed on the host.
#include "decoding_plan.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace hkt::decoding {
namespace {

using Indices = std::vector<std::int64_t>;

std::int64_t ceil_shift(std::int64_t value, std::int64_t level) {
  return (value + (std::int64_t{1} << level) - 1) >> level;
}

// Lists that travel to the device together.
class IndexList {
 public:
  struct Part {
    std::size_t begin, size;
  };
  Part add(const Indices& indices) {
    const Part part{all_.size(), indices.size()};
    all_.insert(all_.end(), indices.begin(), indices.end());
    return part;
  }
  void send(at::Device device) {
    const auto here = at::tensor(all_, at::kLong);
    there_ = device.is_cpu() ? here : here.pin_memory().to(device, /*non_blocking=*/true);
  }
  const at::Tensor& whole() const { return there_; }
  at::Tensor operator[](Part part) const {
    return there_.narrow(0, static_cast<std::int64_t>(part.begin), static_cast<std::int64_t>(part.size));
  }

 private:
  Indices all_;
  at::Tensor there_;
};

// The rows that a call adds to a level of one sequence.
struct NewRows {
  std::int64_t first, end;  // coarse positions that may be new; of padding they are negative
  bool is_row(std::int64_t m) const { return m >= 0 && m < end; }
};

class PlanMaker {
 public:
  PlanMaker(const Sizes& sizes, const Indices& ends, std::int64_t n) : sizes_(sizes), ends_(ends), n_(n) {}

  NewRows new_rows(std::size_t sequence, std::int64_t level) const {
    return {ceil_shift(ends_[sequence] - n_, level), ceil_shift(ends_[sequence], level)};
  }
  std::int64_t most_rows(std::int64_t level) const { return ceil_shift(n_, level); }

  bool has_new_rows(std::int64_t level) const {
    for (std::size_t b = 0; b < ends_.size(); ++b) {
      const auto rows = new_rows(b, level);
      if (rows.end > std::max<std::int64_t>(rows.first, 0)) return true;
    }
    return false;
  }

  // Calls visit(sequence, row, place), for every row there is room for.
  template <class Visit>
  void for_rows(std::int64_t level, const Visit& visit) const {
    for (std::size_t b = 0; b < ends_.size(); ++b) {
      const auto rows = new_rows(b, level);
      for (std::int64_t r = 0; r < most_rows(level); ++r) visit(static_cast<std::int64_t>(b), rows, rows.first + r);
    }
  }

  Indices ring(std::int64_t level) const {
    Indices result;
    const auto size = sizes_.ring_rows(level), places = sizes_.ring_places(level);
    for_rows(level, [&](std::int64_t b, const NewRows& rows, std::int64_t m) {
      result.push_back(b * places + (rows.is_row(m) ? m % size : size + 1));
    });
    return result;
  }

  Indices cache(std::int64_t level) const {
    Indices result;
    const auto heads = sizes_.model.key_head_count(), capacity = sizes_.cache_rows(level);
    for_rows(level, [&](std::int64_t b, const NewRows& rows, std::int64_t m) {
      for (std::int64_t head = 0; head < heads; ++head)
        result.push_back((b * heads + head) * (capacity + 1) + (rows.is_row(m) ? m : capacity));
    });
    return result;
  }

  // The places of rows stride · m − tap of the ring of level `from` for the rows m of level `level`.
  Indices window(std::int64_t level, std::int64_t from, std::int64_t taps) const {
    Indices result;
    const auto size = sizes_.ring_rows(from), places = sizes_.ring_places(from);
    for_rows(level, [&](std::int64_t b, const NewRows& rows, std::int64_t m) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const auto row = (m << (level - from)) - tap;
        result.push_back(b * places + (rows.is_row(m) && row >= 0 ? row % size : size));
      }
    });
    return result;
  }

  // Coarse rows (ends − n) >> level and on, as hkt::attention_extend wants them.
  std::int64_t query_rows(std::int64_t level) const { return ((n_ + (std::int64_t{1} << level) - 2) >> level) + 1; }
  Indices queries(std::int64_t level) const {
    Indices result;
    const auto size = sizes_.ring_rows(level), places = sizes_.ring_places(level);
    for (std::size_t b = 0; b < ends_.size(); ++b) {
      const auto rows = new_rows(b, level);
      for (std::int64_t r = 0; r < query_rows(level); ++r) {
        const auto m = ((ends_[b] - n_) >> level) + r;
        result.push_back(static_cast<std::int64_t>(b) * places + (rows.is_row(m) ? m % size : size));
      }
    }
    return result;
  }

  Indices token_positions() const {
    Indices result;
    for_rows(0, [&](std::int64_t, const NewRows&, std::int64_t m) { result.push_back(std::max<std::int64_t>(m, 0)); });
    return result;
  }

  // In the order of [B, rows of all levels].
  Indices row_positions(std::int64_t levels) const {
    Indices result;
    for (std::size_t b = 0; b < ends_.size(); ++b)
      for (std::int64_t level = 0; level < levels; ++level) {
        const auto rows = new_rows(b, level);
        for (std::int64_t r = 0; r < most_rows(level); ++r) {
          const auto m = rows.first + r;
          result.push_back(rows.is_row(m) ? m << level : 0);
        }
      }
    return result;
  }

 private:
  const Sizes& sizes_;
  const Indices& ends_;
  std::int64_t n_;
};

}  // namespace

std::int64_t Sizes::cache_rows(std::int64_t level) const { return ceil_shift(capacity, level); }

std::int64_t Sizes::ring_rows(std::int64_t level) const {
  const auto taps = std::max(model.kernel_size, level == 0 ? model.convolution_taps : 0);
  return taps + ceil_shift(take_back, level) + ceil_shift(std::min(longest_call, capacity), level) + 1;
}

Plan make_plan(const Sizes& sizes, const Indices& ends, std::int64_t n, at::Device device) {
  const auto& model = sizes.model;
  const PlanMaker maker(sizes, ends, n);
  Plan plan;
  plan.queries = n;
  plan.levels = model.levels;
  while (device.is_cpu() && plan.levels > 1 && !maker.has_new_rows(plan.levels - 1)) --plan.levels;

  struct Parts {
    IndexList::Part ring, cache, window, queries;
  };
  IndexList list;
  std::vector<Parts> parts;
  for (std::int64_t level = 0; level < model.levels; ++level) {
    const bool is_new = level < plan.levels;
    const auto add = [&](bool wanted, const auto& make) { return list.add(wanted ? make() : Indices{}); };
    parts.push_back({add(is_new, [&] { return maker.ring(level); }), add(is_new, [&] { return maker.cache(level); }),
                     add(is_new && level > 0, [&] { return maker.window(level, level - 1, model.kernel_size); }),
                     add(level > 0, [&] { return maker.queries(level); })});
  }
  const bool convolves = model.short_convolution != Convolution::none;
  const auto convolution = list.add(convolves ? maker.window(0, 0, model.convolution_taps) : Indices{});
  const auto token_positions = list.add(maker.token_positions());
  const auto row_positions = list.add(maker.row_positions(plan.levels));
  const auto ends_part = list.add(ends);
  list.send(device);

  for (std::int64_t level = 0; level < model.levels; ++level) {
    const auto& part = parts[static_cast<std::size_t>(level)];
    plan.level.push_back({level < plan.levels ? maker.most_rows(level) : 0, list[part.ring], list[part.cache],
                          list[part.window], list[part.queries], maker.query_rows(level)});
  }
  plan.indices = list.whole();
  plan.ends = list[ends_part];
  plan.token_positions = list[token_positions];
  plan.row_positions = list[row_positions];
  plan.convolution_window = list[convolution];
  const auto first = ends.front() - n;
  const bool together = std::all_of(ends.begin(), ends.end(), [&](auto end) { return end == ends.front(); });
  plan.start = together && first >= 0 ? first : -1;
  return plan;
}

}  // namespace hkt::decoding
