// SPDX-License-Identifier: Apache-2.0
// Reading archives with libarchive, and folders in the same way.
#include "data/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "data/digest.h"
#include "files/quote.h"
#include "files/regular_file.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr int deepest_folder = 4;  // so that a wrong folder, such as "/", is not searched for hours

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw std::invalid_argument(path.string() + " " + why + ".");
}

void check_total(const fs::path& path, std::size_t total, const Limits& limits) {
  if (total > limits.total) refuse(path, "holds more than " + std::to_string(limits.total) + " bytes in all");
}

bool leads_out(const fs::path& path) {
  const auto normal = path.lexically_normal();
  return path.is_absolute() || (!normal.empty() && *normal.begin() == "..");
}

bool has_parent_step(const fs::path& path) { return std::find(path.begin(), path.end(), "..") != path.end(); }

class Archive {
 public:
  enum class Form { files, one_file };

  Archive(fs::path path, Form form, const Limits& limits)
      : path_(std::move(path)), limits_(limits), archive_(archive_read_new(), archive_read_free) {
    if (!fs::is_regular_file(path_)) refuse(path_, "is not a readable file");
    auto* archive = archive_.get();
    archive_read_support_filter_gzip(archive);
    archive_read_support_filter_bzip2(archive);
    archive_read_support_filter_xz(archive);
    archive_read_support_filter_zstd(archive);
    if (form == Form::files) {
      archive_read_support_format_tar(archive);
      archive_read_support_format_zip(archive);
    } else {
      archive_read_support_format_raw(archive);
      archive_read_support_format_empty(archive);
    }
    constexpr std::size_t block = 1 << 16;
    if (archive_read_open_filename(archive, path_.c_str(), block) != ARCHIVE_OK) fail();
  }

  bool next() {
    const int result = archive_read_next_header(archive_.get(), &entry_);
    if (result == ARCHIVE_EOF) return false;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail();
    if (++entries_ > limits_.files) refuse(path_, "holds more than " + std::to_string(limits_.files) + " files");
    check_unpacked();
    return true;
  }

  std::string name() const {
    const char* name = archive_entry_pathname(entry_);
    if (name == nullptr) name = archive_entry_pathname_utf8(entry_);  // not representable in this locale
    if (name == nullptr) refuse(path_, "has an entry whose name cannot be read");
    return name;
  }

  bool is_file() const {
    return archive_entry_filetype(entry_) == AE_IFREG && archive_entry_hardlink(entry_) == nullptr;
  }

  void check_place() const {
    const fs::path place = name();
    const char* symbolic = archive_entry_symlink(entry_);
    const char* hard = archive_entry_hardlink(entry_);
    const bool out =
        leads_out(place) || has_parent_step(place) || (hard != nullptr && leads_out(hard)) ||
        (symbolic != nullptr && (fs::path(symbolic).is_absolute() || leads_out(place.parent_path() / symbolic)));
    if (out) refuse(path_, "is unsafe: its entry " + quote(name()) + " points outside the folder it is unpacked into");
  }

  std::string content() {
    std::string bytes;
    for (;;) {
      const void* piece = nullptr;
      std::size_t size = 0;
      la_int64_t offset = 0;
      const int result = archive_read_data_block(archive_.get(), &piece, &size, &offset);
      if (result == ARCHIVE_EOF) return bytes;
      if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail();
      // A sparse file has holes: pieces need not follow each other.
      if (offset < 0 || static_cast<std::size_t>(offset) > limits_.file ||
          size > limits_.file - static_cast<std::size_t>(offset)) {
        refuse(path_, "holds more than " + std::to_string(limits_.file) + " bytes in " + quote(name()));
      }
      given_ += size;
      check_unpacked();
      bytes.resize(std::max(bytes.size(), static_cast<std::size_t>(offset)));
      bytes.replace(static_cast<std::size_t>(offset), size, static_cast<const char*>(piece), size);
    }
  }

  std::int64_t bytes_read() const { return archive_filter_bytes(archive_.get(), -1); }

 private:
  // Counts everything that was unpacked: in a .tar also unwanted files; a .zip compresses each file by itself.
  void check_unpacked() const {
    check_total(path_, std::max(given_, static_cast<std::size_t>(archive_filter_bytes(archive_.get(), 0))), limits_);
  }

  [[noreturn]] void fail() const {
    const char* why = archive_error_string(archive_.get());
    refuse(path_, std::string("cannot be read as an archive: ") + (why == nullptr ? "it is damaged" : why));
  }

  fs::path path_;
  Limits limits_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  archive_entry* entry_ = nullptr;
  std::int64_t entries_ = 0;
  std::size_t given_ = 0;  // bytes of files that were wanted
};

// libarchive does not check the checksum of gzip, so damage could pass for data; zlib does.
void check_gzip(const fs::path& path, const Limits& limits) {
  if (!fs::is_regular_file(path)) refuse(path, "is not a readable file");
  constexpr unsigned piece = 1 << 18;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) refuse(path, "is not a readable file");
  if (gzdirect(file.get()) != 0) return;  // not gzip
  std::vector<char> bytes(piece);
  std::size_t total = 0;
  for (int count = 0; (count = gzread(file.get(), bytes.data(), piece)) > 0;) {
    check_total(path, total += static_cast<std::size_t>(count), limits);
  }
  int error = Z_OK;
  const std::string why = gzerror(file.get(), &error);
  if (error != Z_OK) refuse(path, "is damaged: " + why);
}

void read_archive(const fs::path& source, const Wanted& wanted, const TakeFile& take, const Notify& notify,
                  const Limits& limits) {
  check_gzip(source, limits);
  Archive archive(source, Archive::Form::files, limits);
  const auto total = static_cast<std::int64_t>(fs::file_size(source));
  while (archive.next()) {
    archive.check_place();
    if (notify) notify(archive.bytes_read(), total, "reading " + source.string());
    if (archive.is_file() && wanted(archive.name())) take(archive.name(), archive.content());
  }
}

std::vector<std::string> wanted_names(const fs::path& folder, const Wanted& wanted) {
  std::vector<std::string> names;
  try {
    for (auto file = fs::recursive_directory_iterator(folder); file != fs::recursive_directory_iterator(); ++file) {
      if (file.depth() >= deepest_folder) file.disable_recursion_pending();
      const auto name = file->path().lexically_relative(folder).generic_string();
      if (wanted(name) && file->is_regular_file()) names.push_back(name);
    }
  } catch (const fs::filesystem_error& error) {
    refuse(folder, "cannot be read: " + error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string content_of(const fs::path& path, const Limits& limits) {
  try {
    return read_file(path, 0, limits.file);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
}

void read_folder(const fs::path& source, const Wanted& wanted, const TakeFile& take, const Notify& notify,
                 const Limits& limits) {
  const auto names = wanted_names(source, wanted);
  std::int64_t done = 0;
  std::size_t total = 0;
  for (const auto& name : names) {
    if (notify) notify(done++, std::ssize(names), "reading " + source.string());
    auto bytes = content_of(source / name, limits);
    check_total(source, total += bytes.size(), limits);
    take(name, std::move(bytes));
  }
}

std::string size_and_time(const fs::path& path) {
  return std::to_string(fs::file_size(path)) + " " +
         std::to_string(fs::last_write_time(path).time_since_epoch().count()) + "\n";
}

}  // namespace

void read_files(const fs::path& source, const Wanted& wanted, const TakeFile& take, const Notify& notify,
                const Limits& limits) {
  if (!fs::exists(source)) refuse(source, "does not exist; it must be a folder or an archive");
  (fs::is_directory(source) ? read_folder : read_archive)(source, wanted, take, notify, limits);
}

std::string fingerprint_of_files(const fs::path& source, const Wanted& wanted) {
  if (!fs::exists(source)) refuse(source, "does not exist; it must be a folder or an archive");
  std::string all = fs::canonical(source).string() + "\n";
  if (!fs::is_directory(source)) return digest(Digest::md5, all + size_and_time(source));
  for (const auto& name : wanted_names(source, wanted)) all += name + " " + size_and_time(source / name);
  return digest(Digest::md5, all);
}

std::string read_compressed(const fs::path& path) {
  check_gzip(path, {});
  Archive archive(path, Archive::Form::one_file, {});
  return archive.next() ? archive.content() : std::string();
}

}  // namespace hkt::data
