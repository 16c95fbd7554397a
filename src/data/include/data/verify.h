// SPDX-License-Identifier: Apache-2.0
// Whether what lies on the disk of a data set is whole.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Finding {
  bool good;
  std::string sentence;
};

// The downloaded archive by its MD5; each packed file by its checksum, its offsets, labels and tokens, and of listops each
// label by its expression. Empty if there is nothing of it on the disk.
std::vector<Finding> verify(Task task);

}  // namespace hkt::data
