// SPDX-License-Identifier: Apache-2.0
// Scores, from the files of the runs.
#include "scores.h"

#include <ATen/ATen.h>

#include "experiments/record.h"
#include "train/stored_score.h"

namespace hkt::experiments {

Scores scores_of(const Row& row) {
  Scores scores;
  for (const auto& run : row.runs) {
    if (!run.is_language()) {
      const auto stored = read_predictions(run.directory());
      scores.correct.push_back(stored.logits.argmax(1).eq(stored.labels));
      scores.values.push_back(100 * scores.correct.back().to(at::kDouble).mean().item<double>());
      continue;
    }
    const auto score = train::read_score(run.directory()).score;
    scores.values.push_back(score.tally.bits());
    if (scores.position.empty()) {
      scores.position = score.by_position;
      continue;
    }
    for (std::size_t i = 0; i < scores.position.size(); ++i) {
      scores.position[i].tally.loss += score.by_position.at(i).tally.loss;
      scores.position[i].tally.predictions += score.by_position.at(i).tally.predictions;
    }
  }
  return scores;
}

}  // namespace hkt::experiments
