// SPDX-License-Identifier: Apache-2.0
// Reading CIFAR-10: a record is a label and 32·32 red, green and blue values.
#include "data/cifar.h"

#include <array>
#include <map>
#include <sstream>
#include <stdexcept>

#include "data/archive.h"
#include "files/quote.h"

namespace hkt::data::cifar {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t pixels = 32 * 32, record = 1 + 3 * pixels, classes = 10;
constexpr const char* names_file = "batches.meta.txt";
constexpr const char* test_file = "test_batch.bin";
constexpr std::array<const char*, 5> train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                    "data_batch_4.bin", "data_batch_5.bin"};

[[noreturn]] void refuse(const fs::path& source, const std::string& why) {
  throw std::invalid_argument(source.string() + " is not CIFAR-10 in its binary form: " + why + ".");
}

Sequences read_batch(const fs::path& source, const std::string& name, const std::string& bytes) {
  if (bytes.empty() || bytes.size() % record != 0) {
    refuse(source, name + " has " + std::to_string(bytes.size()) + " bytes, which is not a multiple of " +
                       std::to_string(record));
  }
  Sequences sequences;
  std::array<std::uint8_t, pixels> image = {};
  for (std::size_t begin = 0; begin < bytes.size(); begin += record) {
    const auto* values = reinterpret_cast<const std::uint8_t*>(bytes.data()) + begin;
    const std::uint8_t label = *values++;
    if (label >= classes) {
      refuse(source, name + " gives image " + std::to_string(begin / record) + " the label " + std::to_string(label) +
                         "; it must be 0 to 9");
    }
    for (std::size_t i = 0; i < pixels; ++i) image[i] = grey(values[i], values[pixels + i], values[2 * pixels + i]);
    sequences.add(image, label);
  }
  return sequences;
}

std::vector<std::string> read_names(const fs::path& source, const std::string& bytes) {
  std::vector<std::string> names;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != classes) {
    refuse(source, std::string(names_file) + " has " + std::to_string(names.size()) + " names, not 10");
  }
  return names;
}

}  // namespace

std::uint8_t grey(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
  // all numbers of the formula times 10,000, and 255.5 / 255 as 511 / 510
  return static_cast<std::uint8_t>((2989 * red + 5870 * green + 1140 * blue) * 511 / (510 * 10000));
}

bool wanted(const std::string& name) {
  const auto file = fs::path(name).filename().string();
  return file == names_file || file == test_file ||
         std::find(train_files.begin(), train_files.end(), file) != train_files.end();
}

Prepared read(const fs::path& source, const Notify& notify) {
  std::map<std::string, Sequences> batches;
  Prepared prepared;
  const auto take = [&](const std::string& name, const std::string& bytes) {
    const auto file = fs::path(name).filename().string();
    const bool twice = file == names_file ? !prepared.labels.empty() : batches.contains(file);
    if (twice) refuse(source, "it has " + quote(file) + " twice");
    if (file == names_file) {
      prepared.labels = read_names(source, bytes);
    } else {
      batches[file] = read_batch(source, file, bytes);
    }
  };
  read_files(source, wanted, take, notify);
  if (prepared.labels.empty()) refuse(source, std::string("it has no ") + names_file);
  const auto batch = [&](const char* file) -> const Sequences& {
    if (!batches.contains(file)) refuse(source, std::string("it has no ") + file);
    return batches[file];
  };
  for (const auto* file : train_files) prepared.train.add_all(batch(file));
  prepared.test = batch(test_file);
  return prepared;
}

}  // namespace hkt::data::cifar
