// SPDX-License-Identifier: Apache-2.0
// The data of an experiment: labelled sequences for classifiers, or a stream for language models.
#pragma once

#include <functional>
#include <variant>

#include "data/dataset.h"
#include "data/stream.h"
#include "train/presets.h"

namespace hkt::experiments {

using TaskData = std::variant<data::Dataset, data::Streams>;
using LoadData = std::function<TaskData(const DataConfig& config)>;

// The config with what the data decides: vocab, and the classes of a classifier.
Config fitted(const train::ConfigDraft& draft, const TaskData& data);

}  // namespace hkt::experiments
