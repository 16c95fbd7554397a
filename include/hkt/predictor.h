// SPDX-License-Identifier: Apache-2.0
// A trained classifier in use: texts in, labels and probabilities out.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hkt/config.h"
#include "hkt/export.h"

namespace hkt {

struct Prediction {
  std::string label;                  // the most probable one; empty if there is an error
  double probability = 0;             // of that label
  std::vector<double> probabilities;  // of each of Predictor::labels(), in their order; empty if there is an error
  bool cut = false;                   // the text is longer than the model's max_length and was cut there
  std::string error;                  // why this text has no label, in one sentence; the others have theirs
};

// Safe for use by several threads at once.
class HKT_EXPORT Predictor {
 public:
  // A run directory of `hkt train`, or a folder that `hkt export` wrote, in bfloat16 too; it computes in float32. `warn`
  // gets a sentence about what was repaired. Throws std::invalid_argument, in one sentence, if the folder has no classifier
  // of texts, and std::runtime_error if its files are damaged.
  explicit Predictor(const std::filesystem::path& folder, c10::Device device = c10::Device(c10::kCPU),
                     const std::function<void(const std::string&)>& warn = {});

  // In the order of the texts. Texts of similar length are computed together; on the CPU by torch's threads, a batch each.
  // phases: the mean of the probabilities for so many beginnings of each text, without its first 0, 1, 2, … tokens; throws
  // std::invalid_argument for ListOps, whose expressions cannot be cut, and below 1.
  std::vector<Prediction> predict(const std::vector<std::string>& texts, std::int64_t phases = 1) const;

  const std::vector<std::string>& labels() const;  // the names of the classes
  const Config& config() const;

 private:
  struct Trained;
  std::shared_ptr<const Trained> trained_;
};

}  // namespace hkt
