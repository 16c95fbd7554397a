// Appending lines of JSON, each with one call, so that a reader sees whole lines.
#include "metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace hkt::train {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::runtime_error(path.string() + " could not be written: " + std::generic_category().message(errno) + ".");
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, std::uint64_t keep) : path_(std::move(path)), bytes_(keep) {
  constexpr mode_t usual = 0666;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, usual);
  struct stat status = {};
  if (file_ < 0 || ::fstat(file_, &status) != 0) fail(path_);
  bytes_ = std::min(keep, static_cast<std::uint64_t>(status.st_size));  // lines that were lost stay lost
  if (::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) fail(path_);
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::add(const nlohmann::ordered_json& line) {
  const std::string text = line.dump() + "\n";
  const auto written = ::write(file_, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    if (written >= 0) errno = ENOSPC;
    fail(path_);
  }
  bytes_ += text.size();
}

void MetricsFile::flush() {
  if (::fsync(file_) != 0) fail(path_);
}

std::vector<nlohmann::json> read_metrics(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object()) lines.push_back(std::move(parsed));
  }
  return lines;
}

}  // namespace hkt::train
