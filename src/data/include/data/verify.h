// SPDX-License-Identifier: Apache-2.0
// Verifies the files of a data set on the disk.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Finding {
  bool good;
  std::string sentence;
};

// Checks the downloaded archive by its digest, and each packed file by its checksum, offsets, labels and tokens; for listops
// also each label against its expression. Empty if nothing is stored.
std::vector<Finding> verify(Task task);

}  // namespace hkt::data
