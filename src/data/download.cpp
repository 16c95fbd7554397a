// SPDX-License-Identifier: Apache-2.0
// Downloads with libcurl: each attempt resumes where the last one ended.
#include "data/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "data/digest.h"
#include "files/regular_file.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr long ok = 200, partial = 206, timed_out = 408, beyond_the_end = 416, too_many = 429, server_error = 500;

fs::path beside(const fs::path& path, const char* ending) {
  auto result = path;
  result += ending;
  return result;
}

std::string last_error() { return std::generic_category().message(errno); }

// A file descriptor that is closed in the destructor.
class OpenFile {
 public:
  explicit OpenFile(fs::path path) : path_(std::move(path)), file_(open_regular(path_, O_RDWR | O_CREAT)) {}
  ~OpenFile() { ::close(file_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool lock() { return ::flock(file_, LOCK_EX | LOCK_NB) == 0; }
  std::int64_t size() const { return ::lseek(file_, 0, SEEK_END); }
  void empty() {
    if (::ftruncate(file_, 0) != 0) fail();
  }
  bool append(const char* bytes, std::size_t size) {
    ::lseek(file_, 0, SEEK_END);
    while (size > 0) {
      const ssize_t written = ::write(file_, bytes, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes += written;
      size -= static_cast<std::size_t>(written);
    }
    return true;
  }
  void flush() {
    if (::fsync(file_) != 0) fail();
  }
  [[noreturn]] void fail() const {
    throw std::runtime_error(path_.string() + " could not be written: " + last_error() + ".");
  }

 private:
  fs::path path_;
  int file_;
};

// One request for the missing rest of the file.
class Attempt {
 public:
  Attempt(const Download& download, OpenFile& file, const Notify& notify)
      : file_(file),
        notify_(notify),
        url_(download.url),
        begin_(file.size()),
        most_(download.most_bytes),
        curl_(make_curl(), curl_easy_cleanup) {
    set(CURLOPT_URL, download.url.c_str());
    set(CURLOPT_ERRORBUFFER, message_.data());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 5L);
    set(CURLOPT_USERAGENT, "hkt");
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(download.connect.count()));
    set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(download.slowest));
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(download.stall.count()));
    limit_protocols();
    // Not CURLOPT_RESUME_FROM, which treats a server that ignores it as an error.
    if (begin_ > 0) set(CURLOPT_RANGE, (std::to_string(begin_) + "-").c_str());
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  void run() {
    code_ = curl_easy_perform(curl_.get());
    if (disk_error_ != 0) {
      errno = disk_error_;
      file_.fail();
    }
  }

  long status() const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  bool complete() const { return code_ == CURLE_OK && (status() == ok || status() == partial) && !misplaced_; }
  // The server sent another range than the one requested.
  bool misplaced() const { return misplaced_; }
  // The server sent more than most_bytes.
  bool endless() const { return endless_; }
  // Trying again cannot help.
  bool hopeless() const {
    if (endless_) return true;
    if (code_ == CURLE_OK) {
      return status() < server_error && status() != timed_out && status() != too_many && status() != beyond_the_end &&
             !complete();
    }
    constexpr std::array hopeless = {CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT, CURLE_PEER_FAILED_VERIFICATION,
                                     CURLE_TOO_MANY_REDIRECTS};
    return std::find(hopeless.begin(), hopeless.end(), code_) != hopeless.end();
  }
  std::string why() const {
    if (endless_) return "the server sends more than the allowed " + std::to_string(most_) + " bytes";
    if (code_ == CURLE_OK) return "the server answered " + std::to_string(status());
    return message_[0] != 0 ? message_.data() : curl_easy_strerror(code_);
  }

 private:
  static CURL* make_curl() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL* curl = ready == CURLE_OK ? curl_easy_init() : nullptr;
    if (curl == nullptr) throw std::runtime_error("libcurl could not be started.");
    return curl;
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(curl_.get(), option, value);
  }

  void limit_protocols() {
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    set(CURLOPT_REDIR_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  }

  static std::size_t on_header(char* bytes, std::size_t, std::size_t size, void* self) {
    static_cast<Attempt*>(self)->header({bytes, size});
    return size;
  }
  static std::size_t on_body(char* bytes, std::size_t, std::size_t size, void* self) {
    return static_cast<Attempt*>(self)->body(bytes, size) ? size : 0;
  }
  static int on_progress(void* self, curl_off_t total, curl_off_t done, curl_off_t, curl_off_t) {
    static_cast<Attempt*>(self)->progress(total, done);
    return 0;
  }

  // "Content-Range: bytes 100-199/200" says where the piece begins.
  void header(std::string_view line) {
    constexpr std::string_view name = "content-range: bytes ";
    std::string start(line.substr(0, name.size()));
    for (auto& letter : start) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (start != name) return;
    piece_begin_ = -1;
    std::from_chars(line.data() + name.size(), line.data() + line.size(), piece_begin_);
  }

  bool body(const char* bytes, std::size_t size) {
    if (status() != ok && status() != partial) return true;  // the page of an error
    if (!begun_) {
      begun_ = true;
      misplaced_ = status() == partial && piece_begin_ != begin_;
      if (misplaced_) return false;
      if (status() == ok) {  // the server ignored the range and sends the whole file
        begin_ = 0;
        file_.empty();
      }
    }
    received_ += static_cast<std::int64_t>(size);
    endless_ = begin_ + received_ > most_;
    if (endless_) return false;
    if (file_.append(bytes, size)) return true;
    disk_error_ = errno;
    return false;
  }

  void progress(std::int64_t total, std::int64_t done) const {
    if (notify_ && begun_) notify_(begin_ + done, total > 0 ? begin_ + total : 0, "downloading " + url_);
  }

  OpenFile& file_;
  const Notify& notify_;
  std::string url_;
  std::int64_t begin_;  // how much of the file was there
  std::int64_t most_, received_ = 0;
  std::int64_t piece_begin_ = -1;
  bool begun_ = false, misplaced_ = false, endless_ = false;
  int disk_error_ = 0;
  CURLcode code_ = CURLE_OK;
  std::array<char, CURL_ERROR_SIZE> message_ = {};
  std::unique_ptr<CURL, void (*)(CURL*)> curl_;
};

[[noreturn]] void give_up(const Download& download, const Attempt& attempt, std::int64_t have) {
  std::string sentence = download.url + " could not be downloaded: " + attempt.why();
  if (have > 0) sentence += "; the part received so far is kept, and the next attempt resumes there";
  throw std::runtime_error(sentence + ".");
}

std::string sum_of_part(const Download& download) {
  return digest_of_file(kind_of(download.digest), beside(download.target, ".part"));
}

// Sends requests until the server says that the file is complete; true if it arrived in one piece.
bool get_all(const Download& download, OpenFile& file, const Notify& notify) {
  bool one_piece = file.size() == 0;
  std::int64_t most = file.size();
  auto wait = download.first_wait;
  for (int failures = 0;;) {
    const auto begin = std::chrono::steady_clock::now();
    const auto size_before = file.size();
    Attempt attempt(download, file, notify);
    attempt.run();
    if (attempt.complete()) return one_piece;
    if (attempt.status() == beyond_the_end && sum_of_part(download) == download.digest) return one_piece;
    if (attempt.status() == beyond_the_end || attempt.misplaced() || attempt.endless()) file.empty();
    if (attempt.hopeless()) give_up(download, attempt, file.size());
    one_piece = file.size() == 0;
    // Only new bytes that arrived fast enough reset the count of failures.
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin + download.first_wait;
    const auto gained = static_cast<double>(file.size() - size_before);
    if (file.size() > most && gained >= static_cast<double>(download.slowest) * passed.count()) {
      failures = 0;
      wait = download.first_wait;
    }
    most = std::max(most, file.size());
    if (++failures >= download.attempts) give_up(download, attempt, file.size());
    std::this_thread::sleep_for(wait);
    wait *= 2;
  }
}

}  // namespace

void download(const Download& download, const Notify& notify) {
  // A separate lock file: the .part file is renamed, and a process waiting for its lock would then write to the target.
  OpenFile lock(beside(download.target, ".lock"));
  if (!lock.lock()) {
    throw std::runtime_error("another process is downloading " + download.target.string() + "; wait for it to end.");
  }
  const auto part = beside(download.target, ".part");
  OpenFile file(part);
  for (bool again = true;; again = false) {
    const bool one_piece = get_all(download, file, notify);
    const auto sum = sum_of_part(download);
    if (sum == download.digest) break;
    file.empty();
    if (again && !one_piece) continue;  // the pieces may come from two versions of the file
    fs::remove(part);
    throw std::runtime_error(download.url + " has the " + name_of(kind_of(download.digest)) + " " + sum +
                             " and should have " + download.digest + "; the downloaded file was removed.");
  }
  file.flush();
  std::error_code error;
  fs::rename(part, download.target, error);
  if (error) {
    throw std::runtime_error(download.target.string() + " could not be renamed into place: " + error.message() + ".");
  }
}

}  // namespace hkt::data
