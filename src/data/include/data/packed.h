// SPDX-License-Identifier: Apache-2.0
// Data sets packed into one memory-mapped safetensors file each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hkt::data {

// Sequences and their labels while they are collected.
struct Sequences {
  std::vector<std::uint8_t> tokens;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int64_t> labels;

  void add(std::span<const std::uint8_t> sequence, std::int64_t label);
  void add_all(const Sequences& others);
  void add_document(std::string_view text);  // with the byte 0 after it, which ends a document; its label is 0
  void keep(std::int64_t count);             // the first ones, and drops the others
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// The content of a packed file. An empty validation split is taken from the training data on loading.
struct Prepared {
  Sequences train, validation, test;
  std::vector<std::string> labels;
  std::int64_t vocab = 256;
  std::vector<std::string> notices;  // sentences for the user about what was read
};

// Concatenated sequences: `offsets` has the beginning of each and the end of the last.
struct PackedPart {
  std::span<const std::uint8_t> tokens;
  std::span<const std::int64_t> offsets, labels;
  std::shared_ptr<const void> owner;  // keeps the file mapped

  std::int64_t size() const { return std::ssize(labels); }
  std::span<const std::uint8_t> sequence(std::int64_t i) const;
};

// Sequences in memory as a part.
PackedPart part_of(Sequences sequences);

// "crc32:" and the checksum of these bytes, one piece after the other.
std::string checksum_of(std::initializer_list<std::span<const std::byte>> pieces);

struct Packed {
  PackedPart train, validation, test;
  std::vector<std::string> labels;
  std::int64_t vocab = 256;
  std::string fingerprint;  // everything that determines the content
  std::string source;       // where it came from, for messages
};

// $HKT_DATA, otherwise hkt in the user's cache folder; nullopt if the environment names neither.
std::optional<std::filesystem::path> data_folder_name();
// The same, created if missing; std::runtime_error if it cannot be.
std::filesystem::path data_folder();
void make_folder(const std::filesystem::path& folder);

void save_packed(const std::filesystem::path& path, Prepared prepared, const std::string& fingerprint,
                 const std::string& source);

// Throws std::runtime_error, in one sentence, for a file that is missing, damaged or inconsistent.
Packed load_packed(const std::filesystem::path& path);

}  // namespace hkt::data
