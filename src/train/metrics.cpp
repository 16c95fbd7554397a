// SPDX-License-Identifier: Apache-2.0
// Appends each line with one write(), so that concurrent readers see complete lines.
#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include "files/json_fields.h"
#include "files/regular_file.h"

namespace hkt::train {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw MetricsError(path.string() + " could not be written: " + std::generic_category().message(errno) + ".");
}

using nlohmann::json;

// Level weights λ, nested as [block][head][level].
bool are_level_weights(const json& value, int depth = 3) {
  if (depth == 0) return value.is_number();
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), [&](const json& part) {
           return are_level_weights(part, depth - 1) && (depth > 2 || part.size() == value.front().size());
         });
}

template <typename IsPart>
bool is_list_of(const json& object, const char* key, IsPart is_part) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() && std::all_of(found->begin(), found->end(), is_part);
}

// One block of the per-epoch theory metrics: for each head, the test of normality of each level, which was called gaussianity
// where rows of several sequences were pooled.
bool is_probe_of_block(const json& block) {
  const auto is_test = [](const json& test) {
    const auto is_number = [&](const char* key) { return test.contains(key) && test[key].is_number(); };
    return test.is_object() && (!is_number("kurtosis") || is_number("gaussian_kurtosis"));
  };
  return is_list_of(block, "heads", [&](const json& head) {
    return is_list_of(head, "normality", is_test) || is_list_of(head, "gaussianity", is_test);
  });
}

bool has_expected_type(const std::string& key, const json& value) {
  static const std::set<std::string> texts = {"event", "reason", "what", "device", "precision"};
  static const std::set<std::string> integers = {
      "step",          "steps",      "epoch",           "epochs",
      "parameters",    "best_epoch", "train_sequences", "validation_sequences",
      "cut_sequences", "threads"};
  if (texts.contains(key)) return value.is_string();
  if (integers.contains(key)) {
    constexpr std::int64_t largest = std::int64_t{1} << 53;
    return fields::is_integer(value, -1, largest);
  }
  if (key == "best") return value.is_boolean();
  if (key == "level_weights") return are_level_weights(value);
  if (key == "theory") return value.is_array() && std::all_of(value.begin(), value.end(), is_probe_of_block);
  return value.is_number();
}

// Drops null values; false if a value has an unexpected type.
bool is_line(json& line) {
  if (!line.is_object() || !line.contains("event")) return false;
  for (auto item = line.begin(); item != line.end();) item = item->is_null() ? line.erase(item) : std::next(item);
  for (const auto& [key, value] : line.items()) {
    if (!has_expected_type(key, value)) return false;
  }
  return line.contains("event");
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, std::uint64_t keep) : path_(std::move(path)), bytes_(keep) {
  file_ = open_regular(path_, O_WRONLY | O_CREAT | O_APPEND);
  struct stat status = {};
  if (::fstat(file_, &status) != 0) fail(path_);
  bytes_ = std::min(keep, static_cast<std::uint64_t>(status.st_size));  // the file may have been truncated since
  if (::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) fail(path_);
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::add(const nlohmann::ordered_json& line) {
  const std::string text = fields::dump(line) + "\n";
  const auto written = ::write(file_, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    const int reason = written >= 0 ? ENOSPC : errno;
    [[maybe_unused]] const int cut = ::ftruncate(file_, static_cast<off_t>(bytes_));  // removes the partial line
    errno = reason;
    fail(path_);
  }
  bytes_ += text.size();
}

void MetricsFile::flush() {
  if (::fsync(file_) != 0) fail(path_);
}

std::vector<json> MetricsReader::next() {
  std::vector<json> lines;
  std::error_code error;
  const auto size = std::filesystem::file_size(path_, error);
  if (error || size == bytes_) return lines;
  if (size < bytes_) bytes_ = 0;
  const auto text = read_file(path_, bytes_);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto line = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (is_line(line)) lines.push_back(std::move(line));
  }
  bytes_ += begin;
  return lines;
}

std::vector<json> read_metrics(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  if (!std::filesystem::is_regular_file(path, error)) read_file(path);  // throws with the reason
  return MetricsReader(path).next();
}

}  // namespace hkt::train
