// SPDX-License-Identifier: Apache-2.0
// The config of a run: the model, its training and its data, as structs with one JSON form.
#pragma once

#include <string>
#include <string_view>

#include "hkt/data_config.h"
#include "hkt/export.h"
#include "hkt/model_config.h"
#include "hkt/train_config.h"

namespace hkt {

struct HKT_EXPORT Config {
  ModelConfig model;
  TrainConfig train;
  DataConfig data;

  // {"format": 1, "model": {…}, "train": {…}, "data": {…}}. "format" is required; other missing keys take the defaults.
  // An unknown or duplicate key, a key of another task, a wrong type or a value out of range throws std::invalid_argument.
  static Config from_json(std::string_view text);
  std::string to_json() const;

  bool operator==(const Config&) const = default;
};

}  // namespace hkt
