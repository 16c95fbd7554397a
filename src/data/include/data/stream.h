// SPDX-License-Identifier: Apache-2.0
// Streams for language models: the tokens of all documents one after the other, in three splits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Stream {
  std::span<const std::uint8_t> tokens;
  std::shared_ptr<const void> owner;  // keeps the packed file mapped
};

struct Streams {
  Stream train, validation, test;
  std::string fingerprint;           // of the training and validation data
  std::int64_t vocab = 256;          // tokens are bytes; in `lm` the byte 0 ends a document
  std::int64_t documents = 0;        // in all splits; each part of enwik8 counts as one
  std::vector<std::string> notices;  // sentences for the user, such as that a damaged file was rebuilt
};

// From the packed cache if it is intact, otherwise prepared and packed. Where the data has no splits of its own, the last
// share data.validation of its training stream is the validation split; without test data the last share is test, and the
// one before it validation. Throws std::invalid_argument, in one sentence, for missing or malformed data, and for a task
// that is no stream.
Streams load_streams(const DataConfig& config, const Notify& notify = {});

// All of a file or folder, read as the task lm reads it, for a model that has been trained on other data. Without the ends of
// documents, the byte 0, for a model of enwik8, which has none. Throws std::invalid_argument, in one sentence, for a file that
// training would refuse, or one of a single byte.
struct FileStream {
  Stream stream;
  std::vector<std::string> notices;  // sentences for the user
};
FileStream load_file_stream(const std::string& file, Task trained_on, const Notify& notify = {});

}  // namespace hkt::data
