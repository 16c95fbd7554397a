// SPDX-License-Identifier: Apache-2.0
// Reading documents from files, folders and lines of JSON.
#include "data/lm.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "data/archive.h"
#include "data/digest.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "reading.h"
#include "text_files.h"

namespace hkt::data::lm {
namespace {

namespace fs = std::filesystem;

constexpr int reader_version = 1;  // raise when the reader's output for the same files changes

bool is_compressed(const fs::path& path) {
  constexpr std::array<const char*, 4> endings = {".gz", ".xz", ".bz2", ".zst"};
  return std::find(endings.begin(), endings.end(), path.extension()) != endings.end();
}

bool is_json(const fs::path& path) { return (is_compressed(path) ? path.stem() : path).extension() == ".jsonl"; }

// The bytes of a file: mapped, or unpacked if it is compressed.
class Content {
 public:
  explicit Content(const fs::path& path) {
    if (is_compressed(path)) {
      unpacked_ = read_compressed(path);
    } else {
      mapped_.emplace(path);
    }
  }

  std::string_view text() const {
    if (!mapped_) return without_mark(unpacked_);
    const auto bytes = mapped_->bytes();
    return without_mark({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

 private:
  std::string unpacked_;
  std::optional<MappedFile> mapped_;
};

// A file that is left out where the user did not name it.
struct Unusable : std::invalid_argument {
  Unusable(const std::string& sentence, bool empty) : std::invalid_argument(sentence), is_empty(empty) {}
  bool is_empty;  // otherwise it contains the byte 0
};

struct Skipped {
  std::int64_t count = 0;
  std::string first;

  void add(const std::string& place) {
    if (count++ == 0) first = place;
  }
};

// What was left out of a file, a folder or the files that match.
struct Tally {
  Skipped empty_files, files_with_zero, empty_texts;
};

void add_document(std::string_view text, const std::string& place, Sequences& documents) {
  if (text.find('\0') != std::string_view::npos) {
    throw Unusable(place + " contains the byte 0, which ends a document.", false);
  }
  documents.add_document(text);
}

void add_line(std::string_view line, const std::string& place, Sequences& documents, Tally& tally) {
  const Refuse refuse = [&](const std::string& why) { throw std::invalid_argument(place + " " + why + "."); };
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) refuse("is empty");
  const auto json = object_of(line, {"text"}, refuse);
  if (!json["text"].is_string()) refuse("has a text that is not a string");
  const auto& text = json["text"].get_ref<const std::string&>();
  if (text.empty()) {
    tally.empty_texts.add(place);
  } else {
    add_document(text, place, documents);
  }
}

void add_lines(std::string_view text, const fs::path& path, Sequences& documents, Tally& tally) {
  const auto before = documents.size();
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    add_line(text.substr(0, end), at_line(path.string(), number), documents, tally);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (documents.size() == before) throw Unusable(path.string() + " has no line with a text.", true);
}

void add_file(const fs::path& path, Sequences& documents, Tally& tally) {
  const Content content(path);
  if (content.text().empty()) throw Unusable(path.string() + " is empty; it must have at least one byte.", true);
  if (is_json(path)) {
    add_lines(content.text(), path, documents, tally);
  } else {
    add_document(content.text(), path.string(), documents);
  }
}

void add_notice(const Skipped& skipped, const char* what, const std::string& source, Prepared& prepared) {
  if (skipped.count == 0) return;
  prepared.notices.push_back(std::string(what) + " of " + source + " are skipped: " + std::to_string(skipped.count) +
                             ", the first is " + skipped.first + ".");
}

// Room for all of them at once, as far as their sizes say.
void reserve(const TextFiles& files, Sequences& documents) {
  std::uintmax_t total = 0;
  for (const auto& path : files.paths) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (!error && !is_compressed(path)) total += size + 1;
  }
  documents.tokens.reserve(total);
}

void add_files(const std::string& source, const std::string& pattern, Sequences& documents, Prepared& prepared,
               const Notify& notify) {
  const auto files = text_files(source, pattern);
  reserve(files, documents);
  Tally tally;
  std::int64_t done = 0;
  for (const auto& path : files.paths) {
    if (notify) notify(done++, std::ssize(files.paths), "reading " + path.string());
    const auto before = documents.size();
    try {
      add_file(path, documents, tally);
    } catch (const Unusable& error) {
      if (files.named) throw;
      documents.keep(before);
      (error.is_empty ? tally.empty_files : tally.files_with_zero).add(path.string());
    }
  }
  if (documents.size() == 0) {
    throw std::invalid_argument(source + " has no text: every file is empty or contains the byte 0.");
  }
  add_notice(tally.files_with_zero, "files with the byte 0", source, prepared);
  add_notice(tally.empty_files, "empty files", source, prepared);
  add_notice(tally.empty_texts, "empty texts", source, prepared);
}

std::string print_of(const std::string& source, const std::string& pattern) {
  if (source.empty()) return "";
  std::string all;
  for (const auto& path : text_files(source, pattern).paths) {
    all += is_json(path) ? "jsonl " : "text ";
    all += is_compressed(path) ? "compressed " : "";
    all += digest_of_file(Digest::md5, path) + "\n";
  }
  return digest(Digest::md5, all);
}

}  // namespace

Prepared read(const DataConfig& config, const Notify& notify) {
  Prepared prepared;
  prepared.labels = {"text"};
  with_file([&] {
    add_files(config.train, config.pattern, prepared.train, prepared, notify);
    if (!config.test.empty()) add_files(config.test, config.pattern, prepared.test, prepared, notify);
  });
  return prepared;
}

std::string fingerprint(const DataConfig& config) {
  return with_file([&] {
    const nlohmann::ordered_json json = {{"task", "lm"},
                                         {"version", reader_version},
                                         {"train", print_of(config.train, config.pattern)},
                                         {"test", print_of(config.test, config.pattern)}};
    return json.dump();
  });
}

}  // namespace hkt::data::lm
