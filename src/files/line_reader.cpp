// SPDX-License-Identifier: Apache-2.0
// Reads in chunks and splits them into lines.
#include "files/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "files/regular_file.h"

namespace hkt {

LineReader::LineReader(const std::filesystem::path& path, std::size_t longest)
    : file_(open_regular(path, O_RDONLY)), owned_(true), longest_(longest) {}

LineReader::LineReader(int file, std::size_t longest) : file_(file), owned_(false), longest_(longest) {}

LineReader::~LineReader() {
  if (owned_) ::close(file_);
}

bool LineReader::fill() {
  constexpr std::size_t chunk = 1 << 16;
  buffer_.resize(chunk);
  next_ = 0;
  ssize_t count = 0;
  do count = ::read(file_, buffer_.data(), chunk);
  while (count < 0 && errno == EINTR);
  if (count < 0) throw std::runtime_error("a line could not be read: " + std::generic_category().message(errno) + ".");
  buffer_.resize(static_cast<std::size_t>(count));
  bytes_ += count;
  return count > 0;
}

bool LineReader::wait(std::chrono::milliseconds time) const {
  if (next_ < buffer_.size()) return true;
  pollfd input = {file_, POLLIN, 0};
  return ::poll(&input, 1, static_cast<int>(std::max(time.count(), decltype(time.count()){0}))) > 0;
}

std::optional<LineReader::Line> LineReader::next() {
  line_.clear();
  bool cut = false, any = false;
  while (next_ < buffer_.size() || fill()) {
    any = true;
    const auto end = std::min(buffer_.find('\n', next_), buffer_.size());
    const auto room = longest_ + 1 - std::min(line_.size(), longest_ + 1);  // one more, for a CR
    cut = cut || end - next_ > room;
    line_.append(buffer_, next_, std::min(end - next_, room));
    next_ = std::min(end + 1, buffer_.size());
    if (end < buffer_.size()) break;
  }
  if (!any) return {};
  std::string_view text = line_;
  if (!cut && text.ends_with('\r')) text.remove_suffix(1);
  cut = cut || text.size() > longest_;
  return Line{text.substr(0, longest_), cut};
}

}  // namespace hkt
