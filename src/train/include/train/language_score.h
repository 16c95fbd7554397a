// SPDX-License-Identifier: Apache-2.0
// How well a language model predicts a stream: with a sliding window, so that every token is scored once and with at least half a
// context behind it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/stream.h"
#include "hkt/config.h"
#include "hkt/modules.h"
#include "train/learner.h"

namespace hkt::train {

// The mean loss of predictions with so many tokens before them in the window; over all windows, so that their first halves,
// which the tally leaves out, are here too.
struct PositionLoss {
  std::int64_t begin, end;  // positions in the window
  Tally tally;
};

// Scored bytes of a stream that are summed up together in what is stored of a score.
constexpr std::int64_t segment_bytes = 4096;

struct LanguageScore {
  Tally tally;
  std::vector<PositionLoss> by_position;  // 0, 1, 2 to 3, 4 to 7, …
  std::vector<Tally> segments;            // of segment_bytes scored bytes each, in order; the last may be shorter
};

struct ScoreOptions {
  std::int64_t most_tokens = 0;  // from the beginning of the stream; 0: all
  Watch watch = {};
};

LanguageScore score(TransformerImpl& model, const data::Stream& stream, const Config& config, at::Device device,
                    const ScoreOptions& options = {});

}  // namespace hkt::train
