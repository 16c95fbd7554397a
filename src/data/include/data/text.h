// SPDX-License-Identifier: Apache-2.0
// The user's own data: files of labels and texts.
#pragma once

#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::text {

// .tsv: a line is label, tab, text; further tabs belong to the text. .jsonl: a line is an object with "label", a string
// or an integer, and "text"; other keys are not looked at. Lines may end with CR LF, and a mark of UTF-8 at the start is
// skipped, and so is the first line of a .tsv that names its columns (label, tab, text), of which a notice tells. Label and
// text are UTF-8 and not empty; the byte 0 is refused, because sequences are padded with it.
// Labels are sorted, as numbers where all are integers. Without a test file `test` is empty.
// Throws std::invalid_argument, in one sentence with file and line, for everything else.
Prepared read(const std::filesystem::path& train, const std::filesystem::path& test, const Notify& notify = {});

// All that determines what is read: the content of both files, wherever they lie.
std::string fingerprint(const std::filesystem::path& train, const std::filesystem::path& test);

}  // namespace hkt::data::text
