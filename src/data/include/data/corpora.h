// SPDX-License-Identifier: Apache-2.0
// enwik8, tiny Shakespeare and WikiText-2: official texts for language models, of which every byte is known.
#pragma once

#include <filesystem>

#include "data/archive.h"
#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::corpora {

constexpr int reader_version = 1;  // raise when the reader's output for the same files changes

Wanted wanted(Task task);

// From a folder or an archive with the official files in it or, where there is only one, from that file, which may be
// compressed. enwik8 is cut into 90, 5 and 5 million bytes; WikiText-2 has three files, each one document; Shakespeare is
// one document, of which the splits are taken on loading. Throws std::invalid_argument, in one sentence, for any content
// but the official one, which is known by its SHA-1.
Prepared read(Task task, const std::filesystem::path& source, const Notify& notify = {});

}  // namespace hkt::data::corpora
