// SPDX-License-Identifier: Apache-2.0
// The user's own texts, without labels, for language models: one stream of documents.
#pragma once

#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::lm {

// data.train and data.test: a file, a folder or a path with wildcards each; files in the order of their paths. A document
// is a file or, in a .jsonl file, the "text" of a line; other keys are ignored. It may be compressed (.gz, .xz, .bz2, .zst,
// up to 1 GiB unpacked). Its bytes are its tokens, UTF-8 or not, without a byte order mark at the beginning of the file.
// The byte 0 ends a document: a file with that byte in it is refused if it is named, and otherwise left out with a notice;
// so is an empty one, and an empty text of a .jsonl file always is left out.
// Throws std::invalid_argument, in one sentence with file and line, for malformed lines, and where no text is found.
Prepared read(const DataConfig& config, const Notify& notify = {});

// Everything that determines the result: the content of the files in their order, wherever they are stored.
std::string fingerprint(const DataConfig& config);

}  // namespace hkt::data::lm
