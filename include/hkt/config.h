// SPDX-License-Identifier: Apache-2.0
// The config of a run: what the model is made of, how it is trained and on what, as structs with one JSON form.
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

  // {"format": 1, "model": {…}, "train": {…}, "data": {…}}. Missing keys take the defaults above, "format" aside;
  // anything unknown, twice there, of the wrong type, out of range or of another task throws std::invalid_argument.
  static Config from_json(std::string_view text);
  std::string to_json() const;

  bool operator==(const Config&) const = default;
};

}  // namespace hkt
