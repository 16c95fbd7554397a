// SPDX-License-Identifier: Apache-2.0
// The data of an experiment: labelled sequences for classifiers, or a stream for language models.
#pragma once

#include <functional>
#include <variant>

#include "data/dataset.h"
#include "data/stream.h"

namespace hkt::experiments {

using TaskData = std::variant<data::Dataset, data::Streams>;
using LoadData = std::function<TaskData(const DataConfig& config)>;

}  // namespace hkt::experiments
