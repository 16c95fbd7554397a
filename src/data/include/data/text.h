// SPDX-License-Identifier: Apache-2.0
// The user's own data: files of labels and texts.
#pragma once

#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::text {

// .tsv: a line is label, tab, text; further tabs belong to the text. .jsonl: a line is an object with "label", a string
// or an integer, and "text"; other keys are ignored. Lines may end with CR LF. A UTF-8 byte order mark is skipped, and so
// is a header line of a .tsv (label, tab, text), with a notice. Label and text are UTF-8 and not empty; the byte 0 is
// refused, because it is reserved for padding.
// Labels are sorted, as numbers if all are integers. Without a test file `test` is empty.
// Throws std::invalid_argument, in one sentence with file and line, for everything else.
Prepared read(const std::filesystem::path& train, const std::filesystem::path& test, const Notify& notify = {});

// Everything that determines the result: the content of both files, wherever they are stored.
std::string fingerprint(const std::filesystem::path& train, const std::filesystem::path& test);

}  // namespace hkt::data::text
