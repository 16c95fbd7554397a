// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: the events of a run, one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hkt::train {

// A line could not be written. The file still ends with a complete line.
struct MetricsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class MetricsFile {
 public:
  // Truncates the file to its first `keep` bytes and appends after them: later lines were written after the state that is
  // resumed.
  MetricsFile(std::filesystem::path path, std::uint64_t keep);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const nlohmann::ordered_json& line);  // throws MetricsError, for example if the disk is full
  void flush();                                  // fsync
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t bytes_;
};

// Reads the file while it grows. Skips an incomplete last line and lines in which a value has an unexpected type. Drops null
// values, which stand for numbers that are not finite.
class MetricsReader {
 public:
  explicit MetricsReader(std::filesystem::path path) : path_(std::move(path)) {}

  // The lines added since the last call; all lines again if the file became shorter.
  std::vector<nlohmann::json> next();

 private:
  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;  // read so far
};

// All lines; none if the file does not exist.
std::vector<nlohmann::json> read_metrics(const std::filesystem::path& path);

}  // namespace hkt::train
