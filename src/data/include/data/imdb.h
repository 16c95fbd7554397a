// SPDX-License-Identifier: Apache-2.0
// IMDB's reviews as sequences of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::imdb {

constexpr int reader_version = 1;  // raise when the reader's output for the same files changes
constexpr std::int64_t train_reviews = 25000, test_reviews = 25000;

bool wanted(const std::string& name);

// From the official folder or archive, possibly inside other folders: train/neg/*.txt, train/pos, test/neg and test/pos,
// sorted by name. A token is a byte of the review, which is never cut. A review that is empty or contains the byte 0,
// which is reserved for padding, is refused; no official one is or does.
Prepared read(const std::filesystem::path& source, const Notify& notify = {});

}  // namespace hkt::data::imdb
