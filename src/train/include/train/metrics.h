// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what happened in a run, an object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hkt::train {

// A line could not be written. What is in the file ends with a whole line all the same.
struct MetricsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class MetricsFile {
 public:
  // Goes on after the first `keep` bytes of the file; what is behind them was written after the state one resumes from.
  MetricsFile(std::filesystem::path path, std::uint64_t keep);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const nlohmann::ordered_json& line);  // throws MetricsError where the disk is full
  void flush();                                  // to the disk
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t bytes_;
};

// Reads such a file while it grows. Left out are a last line that is cut, lines with a value of another kind than is written
// there, and of a line the values that are null, which stand for numbers that are not finite.
class MetricsReader {
 public:
  explicit MetricsReader(std::filesystem::path path) : path_(std::move(path)) {}

  // The lines that were added since the last call; all of them again where the file became shorter.
  std::vector<nlohmann::json> next();

 private:
  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;  // that were read
};

// All lines.
std::vector<nlohmann::json> read_metrics(const std::filesystem::path& path);

}  // namespace hkt::train
