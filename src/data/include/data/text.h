// SPDX-License-Identifier: Apache-2.0
// The user's own data: files of labels and texts.
#pragma once

#include <string>

#include "data/dataset.h"
#include "data/packed.h"
#include "hkt/data_config.h"

namespace hkt::data::text {

// Of config.train and config.test, a file or a folder each:
// .csv: fields between commas, in quotes by RFC 4180. config.label and config.text say which columns count, by name or by
//   number; without them the usual names of a header do, or two columns are label and text.
// .tsv: a line is label, tab, text, and further tabs belong to the text. With config.label, text or quotes it has columns
//   between tabs, as a .csv.
// .jsonl: a line is an object with "label", a string or an integer, and "text", or the keys of config.label and text.
// A folder: FOLDER/CLASS/*.txt, a text in each file; the last line end of a file is dropped.
// Lines may end with CR LF. A UTF-8 byte order mark is skipped, and so is a header line of a .csv or .tsv, with a notice.
// Label and text are not empty and hold no byte 0, which is reserved for padding; a label is UTF-8, a text is any bytes (in
// .jsonl it is UTF-8, because JSON is).
// Labels are sorted, as numbers if all are integers. Without a test file `test` is empty.
// Throws std::invalid_argument, in one sentence with file and line, for everything else.
Prepared read(const DataConfig& config, const Notify& notify = {});

// Everything that determines the result: the content of the files, wherever they are stored, and how they are read.
std::string fingerprint(const DataConfig& config);

}  // namespace hkt::data::text
