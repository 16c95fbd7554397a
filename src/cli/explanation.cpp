// SPDX-License-Identifier: Apache-2.0
// A model's answers, with and without each part of the input and each level, and the queries and keys of its attention, from which
// the page computes scores and attention. So the page grows with the length of the input and not with its square.
#include "explanation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "data/dataset.h"
#include "data/words.h"
#include "report/packed.h"
#include "theory/walk.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t most_answers = 12;

std::string packed(const at::Tensor& numbers) {
  const auto values = numbers.detach().to(at::kFloat).contiguous();
  return report::packed(std::span(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())));
}

std::string packed_bytes(const at::Tensor& tokens) {
  const auto values = tokens.to(at::kByte).contiguous();
  return report::packed(std::span(values.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(values.numel())));
}

theory::Unit range(std::int64_t begin, std::int64_t end) {
  theory::Unit positions(static_cast<std::size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

// Squares of 4 × 4 pixels.
std::vector<theory::Unit> patches(std::int64_t side) {
  constexpr std::int64_t patch = 4;
  std::vector<theory::Unit> units;
  for (std::int64_t top = 0; top < side; top += patch) {
    for (std::int64_t left = 0; left < side; left += patch) {
      auto& unit = units.emplace_back();
      for (std::int64_t row = top; row < top + patch; ++row) {
        for (std::int64_t column = left; column < left + patch; ++column) unit.push_back(row * side + column);
      }
    }
  }
  return units;
}

// Of a long input several neighbours are left out together, so that there are not more passes than this.
std::int64_t merge_to(std::size_t most, std::vector<theory::Unit>& units) {
  const auto together = (units.size() + most - 1) / most;
  if (together < 2) return 1;
  std::vector<theory::Unit> merged;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i % together == 0) merged.emplace_back();
    merged.back().insert(merged.back().end(), units[i].begin(), units[i].end());
  }
  units = std::move(merged);
  return static_cast<std::int64_t>(together);
}

ordered_json blocks_of(TransformerImpl& model, const at::Tensor& tokens) {
  auto blocks = ordered_json::array();
  theory::walk(model, tokens, [&](std::int64_t, HierarchicalAttentionImpl& attention, const theory::BlockView& seen) {
    auto q = ordered_json::array(), k = ordered_json::array();
    for (const auto& level : seen.q) q.push_back(packed(level));
    for (const auto& level : seen.k) k.push_back(packed(level));
    blocks.push_back({{"weights", packed(attention.weights())}, {"q", std::move(q)}, {"k", std::move(k)}});
  });
  return blocks;
}

ordered_json shape_of(const ModelConfig& model) {
  const bool convolved = model.short_convolution != Convolution::none;
  return {{"kind", model.kind == ModelKind::language ? "language" : "classifier"},
          {"causal", model.mask == Mask::causal},
          {"levels", model.levels},
          {"heads", model.heads},
          {"key_heads", model.key_head_count()},
          {"head_width", model.head_width()},
          {"taps", model.kernel_size},
          {"convolution_taps", convolved ? model.convolution_taps : 1},
          {"mean_pooling", model.pooling == Pooling::mean}};
}

// The log-probabilities without each unit in turn, in the precision in which the model predicts.
at::Tensor without_units(const train::TrainedModel& trained, const ExplainedInput& input, const at::Tensor& tokens) {
  auto& model = *trained.model;
  model.eval();
  const bool any = !input.units.empty() && (input.replacement || input.units.size() > 1);
  if (!any) return at::empty({0, theory::log_probabilities(model, tokens).size(-1)}, at::kFloat);
  return theory::log_probabilities_without_units(model, tokens, input.units, input.replacement);
}

at::Tensor without_levels(TransformerImpl& model, const at::Tensor& tokens) {
  std::vector<at::Tensor> levels;
  for (std::int64_t level = 0; level < model.config().levels; ++level)
    levels.push_back(theory::log_probabilities_without_level(model, tokens, level));
  return at::stack(levels);
}

// The classes that are shown: the most probable ones, and the true one.
at::Tensor shown_classes(const at::Tensor& probabilities, const std::vector<std::string>& labels,
                         const std::optional<std::string>& label) {
  auto shown = std::get<1>(probabilities.topk(std::min(most_answers, probabilities.size(0))));
  const auto found = label ? std::find(labels.begin(), labels.end(), *label) : labels.end();
  if (found == labels.end()) return shown;
  const auto truth = at::tensor({static_cast<std::int64_t>(found - labels.begin())}, at::kLong);
  return shown.eq(truth).any().item<bool>() ? shown : at::cat({shown, truth});
}

Answer add_classes(ordered_json& page, const train::TrainedModel& trained, TransformerImpl& exact,
                   const ExplainedInput& input, const at::Tensor& tokens, const std::optional<std::string>& label) {
  const auto& labels = trained.identity.labels;
  const auto all = theory::log_probabilities(exact, tokens);
  const auto shown = shown_classes(all, labels, label);
  auto names = ordered_json::array();
  for (std::int64_t i = 0; i < shown.size(0); ++i)
    names.push_back(labels[static_cast<std::size_t>(shown[i].item<std::int64_t>())]);
  page["classes"] = labels.size();
  page["answers"] = names;
  page["log"] = packed(all.index_select(0, shown));
  page["log_by_level"] = packed(without_levels(exact, tokens).index_select(1, shown));
  page["log_by_unit"] = packed(without_units(trained, input, tokens).index_select(1, shown));
  return {names.front(), all[shown[0]].exp().item<double>()};
}

// After each token, the most probable next ones and the one that came.
Answer add_next_tokens(ordered_json& page, const train::TrainedModel& trained, TransformerImpl& exact,
                       const ExplainedInput& input, const at::Tensor& tokens) {
  const auto all = theory::log_probabilities(exact, tokens), flat = without_levels(exact, tokens);
  const auto [log, shown] = all.topk(std::min(most_answers, all.size(1)), 1);
  const auto levels = flat.size(0), length = tokens.size(0);
  const auto came = tokens.narrow(0, 1, length - 1).unsqueeze(1);
  const auto of_levels = [&](const at::Tensor& index) { return index.unsqueeze(0).expand({levels, -1, -1}); };
  page["next"] = {{"count", shown.size(1)},
                  {"tokens", packed_bytes(shown)},
                  {"log", packed(log)},
                  {"log_by_level", packed(flat.gather(2, of_levels(shown)))},
                  {"came", packed(all.narrow(0, 0, length - 1).gather(1, came))},
                  {"came_by_level", packed(flat.narrow(1, 0, length - 1).gather(2, of_levels(came)))}};
  page["log_by_unit"] = packed(without_units(trained, input, tokens).index_select(1, shown[length - 1]));
  const auto best = static_cast<std::uint8_t>(shown[length - 1][0].item<std::int64_t>());
  return {data::token_text(trained.identity.config.data.task, best), log[length - 1][0].exp().item<double>()};
}

}  // namespace

ExplainedInput explained_input(Task task, std::vector<std::uint8_t> tokens) {
  constexpr std::size_t most_units = 256;
  constexpr std::int64_t side = 32;
  constexpr std::uint8_t blank = 0x20;
  ExplainedInput input{std::move(tokens), {}, 1, {}};
  const auto length = std::ssize(input.tokens);
  if (task == Task::scifar) {
    if (length != side * side) return input;
    input.units = patches(side);
    const auto sum = std::accumulate(input.tokens.begin(), input.tokens.end(), std::int64_t{0});
    input.replacement = static_cast<std::uint8_t>((sum + length / 2) / length);
    return input;
  }
  if (task == Task::listops) {
    for (std::int64_t i = 0; i < length; ++i) input.units.push_back({i});
  } else {
    const std::string text(input.tokens.begin(), input.tokens.end());
    for (const auto& [begin, end] : data::words_of(text))
      input.units.push_back(range(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)));
  }
  if (task != Task::listops) input.replacement = blank;
  input.unit_size = merge_to(most_units, input.units);
  return input;
}

Explanation explain(const train::TrainedModel& trained, const std::string& name, const ExplainedInput& input,
                    const std::optional<std::string>& label) {
  const at::NoGradGuard no_grad;
  const auto tokens = at::tensor(at::ArrayRef<std::uint8_t>(input.tokens), at::kLong);
  const auto exact = theory::exact_copy(*trained.model);
  const auto& model = trained.identity.config.model;
  Explanation result;
  result.page["name"] = name;
  result.page.update(shape_of(model));
  result.best = model.kind == ModelKind::language ? add_next_tokens(result.page, trained, *exact, input, tokens)
                                                  : add_classes(result.page, trained, *exact, input, tokens, label);
  result.page["blocks"] = blocks_of(*exact, tokens);
  return result;
}

std::int64_t page_bytes_per_token(const ModelConfig& model) {
  const double base64 = 4.0 / 3.0,
               both = 1 + static_cast<double>(model.key_head_count()) / static_cast<double>(model.heads);
  double rows = 0;  // of all levels, for each token
  for (std::int64_t level = 0; level < model.levels; ++level) rows += 1 / static_cast<double>(std::int64_t{1} << level);
  return static_cast<std::int64_t>(base64 * sizeof(float) * both * rows *
                                   static_cast<double>(model.blocks * model.width));
}

}  // namespace hkt::cli
