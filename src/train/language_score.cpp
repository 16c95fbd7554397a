// SPDX-License-Identifier: Apache-2.0
// Scoring a stream window by window.
#include "train/language_score.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "data/windows.h"

namespace hkt::train {
namespace {

// Windows at once: bounds the memory of the logits, whatever train.batch is.
std::int64_t windows_at_once(const Config& config) {
  constexpr std::int64_t most_logits = std::int64_t{1} << 26;
  return std::clamp<std::int64_t>(most_logits / (config.model.max_length * config.model.vocab), 1, config.train.batch);
}

// Positions 0, 1, 2 to 3, 4 to 7, … of windows of that length.
std::vector<PositionLoss> position_ranges(std::int64_t length) {
  std::vector<PositionLoss> ranges;
  for (std::int64_t begin = 0; begin < length; begin = std::max<std::int64_t>(1, 2 * begin))
    ranges.push_back({begin, std::min(length, std::max<std::int64_t>(1, 2 * begin)), {}});
  return ranges;
}

struct Prediction {
  double loss;
  bool correct;
};
void add(Tally& tally, const Prediction& prediction) {
  tally.loss += prediction.loss;
  tally.correct += prediction.correct ? 1 : 0;
  ++tally.predictions;
}

// The scored predictions come in the order of the stream.
void add_scored(LanguageScore& score, const Prediction& prediction) {
  if (score.tally.predictions % segment_bytes == 0) score.segments.emplace_back();
  add(score.segments.back(), prediction);
  add(score.tally, prediction);
}

}  // namespace

LanguageScore score(TransformerImpl& model, const data::Stream& whole, const Config& config, at::Device device,
                    const ScoreOptions& options) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  auto stream = whole;
  if (options.most_tokens > 0 && options.most_tokens < std::ssize(stream.tokens))
    stream.tokens = stream.tokens.first(static_cast<std::size_t>(options.most_tokens));
  const auto length = config.model.max_length;
  const auto windows = data::scored_windows(std::ssize(stream.tokens), length);
  const auto step = static_cast<std::size_t>(windows_at_once(config));
  LanguageScore result{{}, position_ranges(length), {}};
  for (std::size_t first = 0; first < windows.size(); first += step) {
    const auto some = std::span(windows).subspan(first, std::min(step, windows.size() - first));
    const auto batch = on_device(data::make_windows(stream, some, length), device);
    const auto logits = logits_of(model, batch, uses_bfloat16(config, device));
    const auto losses = at::cross_entropy_loss(logits.flatten(0, 1), batch.labels.flatten(), {}, at::Reduction::None)
                            .view_as(batch.labels)
                            .cpu();
    const auto correct = logits.argmax(2).eq(batch.labels).cpu();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto* loss = losses.const_data_ptr<float>() + static_cast<std::int64_t>(i) * length;
      const auto* is_correct = correct.const_data_ptr<bool>() + static_cast<std::int64_t>(i) * length;
      for (std::int64_t t = 0; t < some[i].length; ++t) {
        const Prediction prediction{loss[t], is_correct[t]};
        add(result.by_position[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(t)))].tally,
            prediction);
        if (t >= some[i].scored_from) add_scored(result, prediction);
      }
    }
    if (options.watch) options.watch(result.tally.predictions, std::ssize(stream.tokens) - 1);
  }
  model.train(was_training);
  return result;
}

}  // namespace hkt::train
