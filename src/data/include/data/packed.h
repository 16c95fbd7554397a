// SPDX-License-Identifier: Apache-2.0
// Data sets packed into one safetensors file each, which is mapped when it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hkt::data {

// Sequences and their labels while they are collected.
struct Sequences {
  std::vector<std::uint8_t> tokens;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int64_t> labels;

  void add(std::span<const std::uint8_t> sequence, std::int64_t label);
  void add_all(const Sequences& others);
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// What is packed. Validation is empty where it is carved from the training data when that is loaded.
struct Prepared {
  Sequences train, validation, test;
  std::vector<std::string> labels;
  std::int64_t vocab = 256;
  std::vector<std::string> notices;  // sentences for the user about what was read
};

// Sequences one after the other: `offsets` says where each begins, and the end of the last.
struct PackedPart {
  std::span<const std::uint8_t> tokens;
  std::span<const std::int64_t> offsets, labels;
  std::shared_ptr<const void> owner;  // keeps the file mapped

  std::int64_t size() const { return std::ssize(labels); }
  std::span<const std::uint8_t> sequence(std::int64_t i) const;
};

// Sequences in memory as a part.
PackedPart part_of(Sequences sequences);

struct Packed {
  PackedPart train, validation, test;
  std::vector<std::string> labels;
  std::int64_t vocab = 256;
  std::string fingerprint;  // all that determines the content
  std::string source;       // for people: what it was made of
};

// $HKT_DATA, else hkt in the user's folder for caches; nothing where the environment names neither.
std::optional<std::filesystem::path> data_folder_name();
// The same, made if it is not there; std::runtime_error if it cannot be.
std::filesystem::path data_folder();
void make_folder(const std::filesystem::path& folder);

void save_packed(const std::filesystem::path& path, Prepared prepared, const std::string& fingerprint,
                 const std::string& source);

// Throws std::runtime_error, in one sentence, for a file that is not there, is damaged, or contradicts itself.
Packed load_packed(const std::filesystem::path& path);

}  // namespace hkt::data
