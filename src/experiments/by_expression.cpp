// SPDX-License-Identifier: Apache-2.0
// Expressions in groups of equal depth, and of lengths between two powers of two.
#include "by_expression.h"

#include <ATen/ATen.h>

#include <bit>
#include <map>
#include <utility>

#include "data/listops_expression.h"

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

struct Group {
  std::int64_t sequences = 0;
  double correct = 0;  // sum over sequences of the share of seeds
};
using Range = std::pair<std::int64_t, std::int64_t>;

ordered_json json_of(const std::map<Range, Group>& groups) {
  auto list = ordered_json::array();
  for (const auto& [range, group] : groups) {
    list.push_back({{"from", range.first},
                    {"to", range.second},
                    {"sequences", group.sequences},
                    {"accuracy", 100 * group.correct / static_cast<double>(group.sequences)}});
  }
  return list;
}

}  // namespace

void add_by_expression(ordered_json& model, const DataConfig& task, const data::Split& split,
                       const std::vector<at::Tensor>& correct) {
  if (task.task != Task::listops) return;
  const auto shares = at::stack(correct).to(at::kDouble).mean(0).contiguous();
  std::map<Range, Group> by_depth, by_length;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    const auto tokens = split.tokens(i);
    const auto depth = data::listops::depth(tokens);
    const auto low = static_cast<std::int64_t>(std::bit_floor(tokens.size()));
    for (auto* group : {&by_depth[{depth, depth}], &by_length[{low, 2 * low - 1}]}) {
      ++group->sequences;
      group->correct += shares.const_data_ptr<double>()[i];
    }
  }
  model["by_depth"] = json_of(by_depth);
  model["by_length"] = json_of(by_length);
}

}  // namespace hkt::experiments
