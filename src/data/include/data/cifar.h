// SPDX-License-Identifier: Apache-2.0
// CIFAR-10's binary batches as sequences of grey pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "data/packed.h"

namespace hkt::data::cifar {

constexpr int reader_version = 1;  // raise when the reader's output for the same files changes
constexpr std::int64_t train_images = 50000, test_images = 10000;

// floor((.2989 R + .587 G + .114 B) / 255 · 255.5), in integers so that every machine gets the same.
std::uint8_t grey(std::uint32_t red, std::uint32_t green, std::uint32_t blue);

bool wanted(const std::string& name);

// From the official folder or archive, possibly inside other folders: five training batches, one test batch, and
// batches.meta.txt with the names of the labels. A token is the value of a pixel, row by row.
Prepared read(const std::filesystem::path& source, const Notify& notify = {});

}  // namespace hkt::data::cifar
