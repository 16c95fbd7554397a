// SPDX-License-Identifier: Apache-2.0
// IMDB's reviews as sequences of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::imdb {

constexpr int reader_version = 1;  // to be raised when the same files come to be read as something else
constexpr std::int64_t train_reviews = 25000, test_reviews = 25000;

bool wanted(const std::string& name);

// From the official folder or archive, whatever folders lie around it: train/neg/*.txt, train/pos, test/neg and
// test/pos, in the order of their names. A token is a byte of the review; all of it is kept. A review that is empty or
// has a byte 0, with which sequences are padded, is refused: the official ones are and have none.
Prepared read(const std::filesystem::path& source, const Notify& notify = {});

}  // namespace hkt::data::imdb
