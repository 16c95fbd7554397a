// SPDX-License-Identifier: Apache-2.0
// A file of labels and texts for a model that has been trained on other data: with its labels, as its tokens.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct LabelledFile {
  Split split;                       // all of the file, in its order
  std::vector<std::string> notices;  // sentences for the user
};

// Read, and packed, as training would read it: text, label, header and quotes of `trained_on` say how. Throws std::invalid_argument, in
// one sentence, for a file that training would refuse, a label that is not among `labels`, and a text that is not for the
// model's task.
LabelledFile load_labelled_file(const std::string& file, const DataConfig& trained_on,
                                const std::vector<std::string>& labels, const Notify& notify = {});

}  // namespace hkt::data
