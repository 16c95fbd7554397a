// SPDX-License-Identifier: Apache-2.0
// Streams for language models: documents from files, folders and lines, the official texts, splits, and windows.
#include <ATen/ATen.h>
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "data/config_json.h"
#include "data/corpora.h"
#include "data/dataset.h"
#include "data/digest.h"
#include "data/lm.h"
#include "data/official.h"
#include "data/prepare.h"
#include "data/stream.h"
#include "data/verify.h"
#include "data/windows.h"
#include "errors.h"

namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using hkt::DataConfig;
using hkt::Task;
using hkt::data::Stream;
using hkt::data::Streams;

// A folder of its own for each test, which is $HKT_DATA too.
class Texts : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("HKT_DATA", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(path(name).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name).string();
  }
  // The ending of the name says how it is compressed.
  std::string compress(const std::string& name, const std::string& bytes) const {
    auto* archive = archive_write_new();
    archive_write_set_format_raw(archive);
    const auto ending = fs::path(name).extension();
    EXPECT_EQ(ending == ".gz"    ? archive_write_add_filter_gzip(archive)
              : ending == ".xz"  ? archive_write_add_filter_xz(archive)
              : ending == ".bz2" ? archive_write_add_filter_bzip2(archive)
                                 : archive_write_add_filter_zstd(archive),
              ARCHIVE_OK);
    EXPECT_EQ(archive_write_open_filename(archive, path(name).c_str()), ARCHIVE_OK);
    auto* entry = archive_entry_new();
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_write_header(archive, entry);
    archive_write_data(archive, bytes.data(), bytes.size());
    archive_entry_free(entry);
    archive_write_close(archive);
    archive_write_free(archive);
    return path(name).string();
  }
  std::size_t cached() const { return std::distance(fs::directory_iterator(path("cache")), fs::directory_iterator()); }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("hkt-streams-" + std::to_string(::getpid()));
};

DataConfig lm(const std::string& train, const std::string& pattern = "*", const std::string& test = "",
              double validation = 0) {
  DataConfig config;
  config.task = Task::lm;
  config.train = train;
  config.pattern = pattern;
  config.test = test;
  config.validation = validation;
  return config;
}

DataConfig official(Task task, const std::string& source) {
  DataConfig config;
  config.task = task;
  config.source = source;
  return config;
}

// The stream as text, with "|" where a document ends.
std::string shown(const Stream& stream) {
  std::string text(stream.tokens.begin(), stream.tokens.end());
  std::replace(text.begin(), text.end(), '\0', '|');
  return text;
}

std::string train_of(const DataConfig& config) { return shown(hkt::data::load_streams(config).train); }

std::string error_of(const DataConfig& config) {
  return message_of<std::invalid_argument>([&] { hkt::data::load_streams(config); });
}

// ---- which files

TEST_F(Texts, AFileIsADocument) {
  const auto streams = hkt::data::load_streams(lm(write("a.txt", "one\ntwo\n")));
  EXPECT_EQ(shown(streams.train), "one\ntwo\n|");
  EXPECT_TRUE(streams.validation.tokens.empty());
  EXPECT_TRUE(streams.test.tokens.empty());
  EXPECT_EQ(streams.vocab, 256);
  EXPECT_EQ(streams.documents, 1);
  EXPECT_TRUE(streams.notices.empty());
}

TEST_F(Texts, FilesOfAFolderAreSortedByTheirPaths) {
  write("books/b.txt", "3");
  write("books/a.txt", "1");
  write("books/a/z.txt", "2");  // "a.txt" comes before "a/z.txt"
  write("books/deep/er/and/still/deeper/c.md", "4");
  write("books/.git/config", "hidden");
  write("books/a/.swp", "hidden");
  EXPECT_EQ(train_of(lm(path("books"))), "1|2|3|4|");
  EXPECT_EQ(train_of(lm(path("books").string() + "/")), "1|2|3|4|");
  EXPECT_EQ(train_of(lm(path("books"), "*.txt")), "1|2|3|");
  EXPECT_EQ(train_of(lm(path("books"), "[a-b].t?t")), "1|3|");
  EXPECT_EQ(train_of(lm(path("books/.git/config"))), "hidden|") << "it is named";
}

TEST_F(Texts, Wildcards) {
  write("part1/a.txt", "1");
  write("part1/b.md", "2");
  write("part2/a.txt", "3");
  write("part2/.a.txt", "hidden");
  write("part2/folder.txt/inner.txt", "in a folder");
  write("part[3]/a.txt", "5");
  write("odd*name.txt", "6");
  write("oddly-name.txt", "7");
  const auto below = [&](const std::string& wildcards) { return lm(path(wildcards)); };
  EXPECT_EQ(train_of(below("part?/*.txt")), "1|3|");
  EXPECT_EQ(train_of(below("part*/a.*")), "1|3|5|");
  EXPECT_EQ(train_of(below("part1/*")), "1|2|");
  EXPECT_EQ(train_of(below("part[3]/*")), "5|") << "a part without * and ? is taken as it is";
  EXPECT_EQ(train_of(below("odd*name.txt")), "6|") << "there is a file of this very name";
  EXPECT_EQ(train_of(below("part2/.*")), "hidden|");
  expect_within("part*/*.csv matches no file", error_of(below("part*/*.csv")));
  expect_within("part2/folder* matches no file", error_of(below("part2/folder*")));
  expect_within("none*/x matches no file", error_of(below("none*/x")));
  const auto before = fs::current_path();
  fs::current_path(path("part1"));
  EXPECT_EQ(train_of(lm("*.md")), "2|");
  EXPECT_EQ(train_of(lm("../part2/a.t*")), "3|");
  fs::current_path(before);
}

TEST_F(Texts, LinksDoNotLeadInCircles) {
  write("books/a.txt", "1");
  write("elsewhere/b.txt", "2");
  fs::create_directory_symlink(path("books"), path("books/again"));
  fs::create_directory_symlink("..", path("books/up"));
  fs::create_symlink("itself.txt", path("books/itself.txt"));
  fs::create_symlink("nothing", path("books/broken.txt"));
  fs::create_symlink(path("elsewhere/b.txt"), path("books/link.txt"));
  EXPECT_EQ(train_of(lm(path("books"))), "1|2|") << "a link to a file is followed";
  EXPECT_EQ(train_of(lm(path("books/*.txt"))), "1|2|");
  EXPECT_EQ(train_of(lm(path("books/again"))), "1|2|");
  expect_within("itself.txt does not exist", error_of(lm(path("books/itself.txt"))));
}

TEST_F(Texts, WhatIsNotThere) {
  write("books/a.txt", "1");
  fs::create_directory(path("empty"));
  expect_within("data.train is empty; the task lm needs", error_of(lm("")));
  expect_within("no.txt does not exist; it must be a file, a folder or a path with * or ?",
                error_of(lm(path("no.txt"))));
  expect_within("books has no file whose name matches \"*.md\"", error_of(lm(path("books"), "*.md")));
  expect_within("books has no file whose name matches \"\"", error_of(lm(path("books"), "")));
  expect_within("empty has no file", error_of(lm(path("empty"))));
  expect_within("no.txt does not exist", error_of(lm(path("books"), "*", path("no.txt"))));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_within("pipe cannot be read: it is not a regular file", error_of(lm(path("pipe"))));
  EXPECT_FALSE(fs::exists(path("cache")) && cached() > 0) << "nothing is packed";
}

// ---- documents

TEST_F(Texts, BytesAreBytes) {
  EXPECT_EQ(train_of(lm(write("a", "\xef\xbb\xbfmark"))), "mark|");
  EXPECT_EQ(train_of(lm(write("b", "x\xef\xbb\xbf"))), "x\xef\xbb\xbf|") << "a mark only at the beginning";
  EXPECT_EQ(train_of(lm(write("c", "\xff\xfe\x80\r\n"))), "\xff\xfe\x80\r\n|");
  std::string all;
  for (int i = 1; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(train_of(lm(write("d", all))), all + "|");
}

TEST_F(Texts, LinesOfJson) {
  const auto file =
      write("a.jsonl",
            "\xef\xbb\xbf{\"text\": \"one\\n\", \"id\": 7}\r\n"
            "{\"meta\": {\"text\": 1}, \"text\": \"zw\\u00f6lf\"}\n{\"text\": \"\"}\n{\"text\": \"last\"}");
  const auto streams = hkt::data::load_streams(lm(file));
  EXPECT_EQ(shown(streams.train), "one\n|zwölf|last|");
  EXPECT_EQ(streams.documents, 3);
  ASSERT_EQ(streams.notices.size(), 1u);
  EXPECT_EQ(streams.notices[0], "empty texts of " + file + " are skipped: 1, the first is " + file + ", line 3.");

  const auto message = [&](const std::string& content) { return error_of(lm(write("b.jsonl", content))); };
  expect_within("b.jsonl, line 2 cannot be read: it is not JSON", message("{\"text\": \"x\"}\n{\n"));
  expect_within("b.jsonl, line 1 cannot be read: it has the key \"text\" twice", message(R"({"text":"a","text":"b"})"));
  expect_within("b.jsonl, line 1 is not an object with \"text\"", message(R"({"label": "x"})"));
  expect_within("b.jsonl, line 1 is not an object with \"text\"", message(R"(["text"])"));
  expect_within("b.jsonl, line 1 has a text that is not a string", message(R"({"text": 7})"));
  expect_within("b.jsonl, line 2 is empty", message("{\"text\": \"x\"}\n\n{\"text\": \"x\"}\n"));
  expect_within("b.jsonl, line 2 contains the byte 0", message("{\"text\": \"x\"}\n{\"text\": \"a\\u0000b\"}\n"));
  expect_within("b.jsonl has no line with a text", message("{\"text\": \"\"}\n"));
  expect_within("b.jsonl, line 1 cannot be read", message("{\"text\": \"\xff\"}"));
  write("folder/good.txt", "good");
  write("folder/other.jsonl", "{\"label\": 1}\n");
  expect_within("other.jsonl, line 1 is not an object", error_of(lm(path("folder"))));
  EXPECT_EQ(train_of(lm(path("folder"), "*.txt")), "good|");
}

TEST_F(Texts, CompressedFiles) {
  for (const char* ending : {".gz", ".xz", ".bz2", ".zst"}) {
    SCOPED_TRACE(ending);
    EXPECT_EQ(train_of(lm(compress("a.txt"s + ending, "\xef\xbb\xbftext" + std::string(ending)))),
              "text"s + ending + "|");
    EXPECT_EQ(train_of(lm(compress("a.jsonl"s + ending, "{\"text\": \"1\"}\n{\"text\": \"2\"}\n"))), "1|2|");
  }
  EXPECT_EQ(train_of(lm(path("*.gz"))), "1|2|text.gz|");
  // Under another name it is not unpacked, and has the byte 0 like other things that are not text.
  fs::rename(path("a.txt.gz"), path("plain"));
  expect_within("plain contains the byte 0", error_of(lm(path("plain"))));
  const auto whole = fs::file_size(path("a.txt.xz"));
  fs::resize_file(path("a.txt.xz"), whole - 8);
  expect_within("a.txt.xz cannot be read as an archive", error_of(lm(path("a.txt.xz"))));
}

TEST_F(Texts, WhatIsNotTextIsRefusedOrLeftOut) {
  const auto zero = write("books/b.bin", "a\0b"s);
  write("books/c.bin", "\0"s);
  const auto empty = write("books/d.txt", ""), marked = write("books/e.txt", "\xef\xbb\xbf");
  expect_within("b.bin contains the byte 0, which ends a document", error_of(lm(zero)));
  expect_within("d.txt is empty", error_of(lm(empty)));
  expect_within("e.txt is empty", error_of(lm(marked)));
  expect_within("books has no text: every file is empty or contains the byte 0", error_of(lm(path("books"))));
  write("books/a.txt", "1");
  write("books/f.jsonl", "{\"text\": \"good\"}\n{\"text\": \"\\u0000\"}\n");
  write("books/g.txt", "2");
  for (const auto& source : {path("books"), path("books/*")}) {
    const auto streams = hkt::data::load_streams(lm(source, "*", "", 0));
    EXPECT_EQ(shown(streams.train), "1|2|") << "nothing remains of a file that is left out";
    EXPECT_EQ(streams.documents, 2);
    ASSERT_EQ(streams.notices.size(), 2u);
    EXPECT_EQ(streams.notices[0],
              "files with the byte 0 of " + source.string() + " are skipped: 3, the first is " + zero + ".");
    EXPECT_EQ(streams.notices[1], "empty files of " + source.string() + " are skipped: 2, the first is " + empty + ".");
    fs::remove_all(path("cache"));
  }
}

TEST_F(Texts, AFolderThatCannotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every folder.";
  write("books/closed/a.txt", "1");
  fs::permissions(path("books/closed"), fs::perms::none);
  expect_within("books cannot be read: Permission denied", error_of(lm(path("books"))));
  fs::permissions(path("books/closed"), fs::perms::owner_all);
}

// ---- splits

TEST_F(Texts, TheEndIsForValidationAndTest) {
  const auto file = write("a.txt", "0123456789012345678");  // twenty tokens with the byte 0
  const auto split = [&](double share, const std::string& test = "") {
    const auto streams = hkt::data::load_streams(lm(file, "*", test, share));
    return shown(streams.train) + " " + shown(streams.validation) + " " + shown(streams.test);
  };
  EXPECT_EQ(split(0.1), "0123456789012345 67 8|");
  EXPECT_EQ(split(0.09), "012345678901234567 8 |") << "rounded down";
  EXPECT_EQ(split(0.49), "01 234567890 12345678|");
  EXPECT_EQ(split(0), "0123456789012345678|  ");
  EXPECT_EQ(cached(), 1u) << "the share is no part of what is packed";
  const auto test = write("b.txt", "test");
  EXPECT_EQ(split(0.1, test), "012345678901234567 8| test|");
  EXPECT_EQ(split(0.95, test), "0 123456789012345678| test|");
  expect_within("data.validation is 0.5; it must be below 0.5 without data.test, because test takes the same share",
                error_of(lm(file, "*", "", 0.5)));
  expect_within("data.validation is 1.0", error_of(lm(file, "*", test, 1)));
}

TEST_F(Texts, TheFingerprintIsThatOfTheContent) {
  const auto print = [](const DataConfig& config) { return hkt::data::load_streams(config).fingerprint; };
  const auto first = print(lm(write("a.txt", "some text"), "*", "", 0.2));
  EXPECT_EQ(first, print(lm(write("moved/b.txt", "some text"), "*", "", 0.2)));
  EXPECT_NE(first, print(lm(path("a.txt"), "*", "", 0.3))) << "another split";
  EXPECT_NE(first, print(lm(write("c.txt", "Some text"), "*", "", 0.2)));
  const auto with_test = print(lm(path("a.txt"), "*", path("c.txt"), 0.2));
  EXPECT_EQ(with_test, print(lm(path("a.txt"), "*", write("d.txt", "another test"), 0.2))) << "test does not count";
}

TEST_F(Texts, TheFileStaysMappedAsLongAsAStreamOfIt) {
  Stream stream;
  {
    auto streams = hkt::data::load_streams(lm(write("a.txt", "still there"), "*", "", 0.3));
    stream = streams.validation;
  }
  fs::remove_all(path("cache"));
  EXPECT_EQ(shown(stream), "the");
}

TEST_F(Texts, ADamagedFileIsMadeAnewAndAChangedOneReadAgain) {
  const auto config = lm(write("a.txt", std::string(10'000, 'x')));
  EXPECT_TRUE(hkt::data::obtain(config).made);
  const auto packed = hkt::data::obtain(config);
  EXPECT_FALSE(packed.made);
  std::fstream(packed.path, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('y');
  const auto findings = hkt::data::verify(Task::lm);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_FALSE(findings[0].good);
  const auto streams = hkt::data::load_streams(config);
  ASSERT_EQ(streams.notices.size(), 1u);
  expect_within("It was rebuilt.", streams.notices[0]);
  EXPECT_EQ(shown(streams.train), std::string(10'000, 'x') + "|");
  expect_within("10001 training, 0 validation and 0 test tokens, documents: 1",
                hkt::data::verify(Task::lm)[0].sentence);
  write("a.txt", std::string(10'000, 'z'));
  EXPECT_EQ(train_of(config), std::string(10'000, 'z') + "|");
  EXPECT_EQ(cached(), 2u);
}

TEST_F(Texts, StreamsAndSequencesAreLoadedApart) {
  const auto config = lm(write("a.txt", "x"));
  expect_within("the task lm is a stream of text without labels",
                message_of<std::invalid_argument>([&] { hkt::data::load(config); }));
  expect_within("the task listops has sequences with labels", error_of(DataConfig()));
  for (const auto task : hkt::data::all_tasks()) {
    EXPECT_EQ(hkt::is_stream(task), task >= Task::lm) << hkt::data::task_name(task);
  }
}

TEST(StreamConfigs, EveryTaskHasItsOwnKeys) {
  const auto message = [](const char* text) {
    DataConfig config;
    return message_of<std::invalid_argument>([&] { hkt::read_json(hkt::fields::Json::parse(text), config); });
  };
  EXPECT_EQ(message(R"({"task": "lm", "train": "a", "pattern": "*.c", "test": "b", "validation": 0.6})"), "no error");
  EXPECT_EQ(message(R"({"task": "enwik8", "source": "a"})"), "no error");
  EXPECT_EQ(message(R"({"task": "shakespeare", "source": "a", "validation": 0.05})"), "no error");
  expect_within("data.source is a key of the task \"scifar\"", message(R"({"task": "lm", "source": "a"})"));
  expect_within("data.validation is a key of", message(R"({"task": "enwik8", "validation": 0.05})"));
  expect_within("data.validation is a key of", message(R"({"task": "wikitext2", "validation": 0.05})"));
  expect_within("data.pattern is a key of the task \"lm\"", message(R"({"task": "text", "pattern": "*"})"));
  expect_within("data.seed is a key of the task \"listops\"", message(R"({"task": "lm", "seed": 1})"));
  expect_within("it must be below 0.5 for shakespeare", message(R"({"task": "shakespeare", "validation": 0.5})"));
  expect_within("nearest: \"enwik8\"", message(R"({"task": "enwik9"})"));
  auto config = lm("a", "*.txt", "b", 0.05);
  DataConfig read;
  hkt::read_json(hkt::fields::Json(hkt::to_json(config)), read);
  EXPECT_EQ(read, config);
}

// ---- the official texts

TEST_F(Texts, OnlyTheOfficialContentHasItsName) {
  for (const auto task : {Task::enwik8, Task::shakespeare}) {
    const auto name = hkt::data::task_name(task);
    const auto error = error_of(official(task, write(name, "not it")));
    expect_within(" is not the official " + name + ": it has 6 bytes with the SHA-1 " +
                      hkt::data::digest(hkt::data::Digest::sha1, "not it"),
                  error);
    expect_within("the task lm takes other texts", error);
    expect_within("is not the official " + name, error_of(official(task, compress(name + ".xz", "not it"))));
  }
  write("wiki/wiki.train.tokens", "x");
  write("wiki/wiki.valid.tokens", "x");
  expect_within("wiki is not the official wikitext2: it has no wiki.test.tokens",
                error_of(official(Task::wikitext2, path("wiki"))));
  write("wiki/wiki.test.tokens", "x");
  expect_within("wiki is not the official wikitext2: wiki.train.tokens has 1 bytes",
                error_of(official(Task::wikitext2, path("wiki"))));
  write("wiki/more/wiki.test.tokens", "x");
  expect_within("it has \"wiki.test.tokens\" twice", error_of(official(Task::wikitext2, path("wiki"))));
  expect_within("wiki is not the official enwik8: it has no enwik8", error_of(official(Task::enwik8, path("wiki"))));
  expect_within("cannot be read as an archive", error_of(official(Task::wikitext2, path("enwik8"))));
  expect_within("no.zip does not exist", error_of(official(Task::enwik8, path("no.zip"))));
  expect_within("the data set wikitext2 is missing", error_of(official(Task::wikitext2, "")));
  expect_within("run hkt data fetch enwik8", error_of(official(Task::enwik8, "")));
}

TEST(OfficialTexts, AllButTheUsersOwnHaveAnArchive) {
  for (const auto task : hkt::data::all_tasks()) {
    if (task == Task::listops || task == Task::text || task == Task::lm) continue;
    const auto& set = hkt::data::official(task);
    EXPECT_EQ(set.name, hkt::data::task_name(task));
    EXPECT_NO_THROW(hkt::data::kind_of(set.digest));
    EXPECT_GT(set.bytes, 0);
  }
  expect_within("the task lm has no official archive",
                message_of<std::invalid_argument>([] { hkt::data::official(Task::lm); }));
}

std::string digest(const Stream& stream) {
  return hkt::data::digest(hkt::data::Digest::md5,
                           {reinterpret_cast<const char*>(stream.tokens.data()), stream.tokens.size()});
}

std::string first_bytes(const Stream& stream, std::size_t count) { return shown(stream).substr(0, count); }
std::string last_bytes(const Stream& stream, std::size_t count) {
  return shown(stream).substr(stream.tokens.size() - count);
}

// The digests are those that head, tail and md5sum give.
TEST_F(Texts, TheRealEnwik8) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where enwik8.xz lies.";
  const auto streams = hkt::data::load_streams(official(Task::enwik8, fs::path(folder) / "enwik8.xz"));
  EXPECT_TRUE(streams.notices.empty());
  EXPECT_EQ(streams.train.tokens.size(), 90'000'000u);
  EXPECT_EQ(streams.validation.tokens.size(), 5'000'000u);
  EXPECT_EQ(streams.test.tokens.size(), 5'000'000u);
  EXPECT_EQ(first_bytes(streams.train, 17), "<mediawiki xmlns=");
  EXPECT_EQ(last_bytes(streams.train, 16), "to the dry north");
  EXPECT_EQ(first_bytes(streams.validation, 13), "ern highlands");
  EXPECT_EQ(first_bytes(streams.test, 13), "ww.auburn.edu");
  EXPECT_EQ(last_bytes(streams.test, 13), "Japanese has ");
  EXPECT_EQ(digest(streams.train), "a23bcd55c7344e2ccb33ed04297e49d7");
  EXPECT_EQ(digest(streams.validation), "afc1109404cf229087753a6ee1afdcf4");
  EXPECT_EQ(digest(streams.test), "6fb37a544556262e41b8fe64c14a0457");
  EXPECT_EQ(*std::min_element(streams.train.tokens.begin(), streams.train.tokens.end()), '\t') << "no byte 0";
}

TEST_F(Texts, TheRealShakespeare) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where tinyshakespeare.txt.xz lies.";
  hkt::data::obtain_from(Task::shakespeare, fs::path(folder) / "tinyshakespeare.txt.xz");
  auto config = official(Task::shakespeare, "");
  config.validation = 0.05;
  const auto streams = hkt::data::load_streams(config);
  EXPECT_EQ(streams.train.tokens.size(), 1'003'857u);
  EXPECT_EQ(streams.validation.tokens.size(), 55'769u);
  EXPECT_EQ(streams.test.tokens.size(), 55'769u);
  EXPECT_EQ(first_bytes(streams.train, 15), "First Citizen:\n");
  EXPECT_EQ(last_bytes(streams.test, 9), "waking.\n|");
}

TEST_F(Texts, TheRealWikiText2) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where wikitext-2.tar.xz lies.";
  const auto streams = hkt::data::load_streams(official(Task::wikitext2, fs::path(folder) / "wikitext-2.tar.xz"));
  EXPECT_EQ(streams.train.tokens.size(), 10'797'149u);
  EXPECT_EQ(streams.validation.tokens.size(), 1'121'682u);
  EXPECT_EQ(streams.test.tokens.size(), 1'256'450u);
  EXPECT_EQ(first_bytes(streams.validation, 21), " \n = Homarus gammarus");
  EXPECT_EQ(last_bytes(streams.train, 19), "quired taste . \n \n|");
}

// ---- windows for training

// A stream whose tokens say where they are, as long as it is short.
Stream counting(std::int64_t size) {
  const auto tokens = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < tokens->size(); ++i) (*tokens)[i] = static_cast<std::uint8_t>(i);
  return {*tokens, tokens};
}

void expect_same(const hkt::data::Batch& one, const hkt::data::Batch& other) {
  EXPECT_TRUE(at::equal(one.tokens, other.tokens));
  EXPECT_TRUE(at::equal(one.labels, other.labels));
  EXPECT_TRUE(at::equal(one.lengths, other.lengths));
  EXPECT_EQ(one.valid_tokens, other.valid_tokens);
}

TEST(Windows, TokensAndTheNextOnes) {
  const auto batch = hkt::data::make_windows(counting(200), 7, 64, 3, 5);
  EXPECT_EQ(batch.tokens.sizes(), (at::IntArrayRef{64, 7}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(batch.labels.sizes(), (at::IntArrayRef{64, 7}));
  EXPECT_TRUE(at::equal(batch.lengths, at::full({64}, 7, at::kLong)));
  EXPECT_EQ(batch.valid_tokens, 64 * 7);
  EXPECT_TRUE(at::equal(batch.labels, batch.tokens + 1)) << "the token after each";
  EXPECT_TRUE(at::equal(batch.tokens, batch.tokens.slice(1, 0, 1) + at::arange(7))) << "tokens that follow each other";
}

TEST(Windows, DependOnSeedStepAndIndexAlone) {
  const auto stream = counting(250);
  const auto few = hkt::data::make_windows(stream, 8, 16, 1, 2), more = hkt::data::make_windows(stream, 8, 32, 1, 2);
  expect_same(few, hkt::data::make_windows(stream, 8, 16, 1, 2));
  EXPECT_TRUE(at::equal(few.tokens, more.tokens.slice(0, 0, 16))) << "whatever the size of the batch";
  EXPECT_FALSE(at::equal(few.tokens, hkt::data::make_windows(stream, 8, 16, 1, 3).tokens));
  EXPECT_FALSE(at::equal(few.tokens, hkt::data::make_windows(stream, 8, 16, 2, 2).tokens));
}

TEST(Windows, TheOnesToLookAtAreDrawnAndDoNotOverlap) {
  const auto begins = [](std::int64_t count, std::uint64_t seed) {
    std::vector<std::int64_t> found;
    for (const auto& window : hkt::data::drawn_windows(counting(250), 20, count, seed)) {
      EXPECT_TRUE(at::equal(window, window[0] + at::arange(20)));
      found.push_back(window[0].item<std::int64_t>());
    }
    return found;
  };
  const std::vector<std::int64_t> golden = {120, 100, 20, 180};  // by another implementation of the generator
  EXPECT_EQ(begins(4, 5), golden);
  EXPECT_NE(begins(4, 6), golden);
  const auto all = begins(100, 0);
  EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), 12u);
  EXPECT_EQ(hkt::data::drawn_windows(counting(7), 20, 3, 0).size(), 1u) << "shorter than a window";
}

// As Python computes them with integers of any size: a change here breaks everyone's results.
TEST(Windows, GoldenPlaces) {
  using hkt::data::window_place;
  EXPECT_EQ(window_place(89'999'489, 0, 0, 0), 70434127);
  EXPECT_EQ(window_place(89'999'489, 0, 0, 3), 20433698);
  EXPECT_EQ(window_place(1000, 42, 0, 3), 332);
  EXPECT_EQ(window_place(1000, 42, 4, 3), 133);
  EXPECT_EQ(window_place(std::int64_t{3} << 61, 7, 2, 0), 5241190175170594567);
  EXPECT_EQ(window_place(1, UINT64_MAX, std::int64_t{1} << 40, 5), 0);
}

TEST(Windows, PlacesAreUniform) {
  constexpr int places = 50, draws = 200'000;
  constexpr double expected = draws / double{places};
  std::array<double, places> by_step = {}, by_index = {}, by_seed = {};
  for (int i = 0; i < draws; ++i) {
    ++by_step[hkt::data::window_place(places, 1, i, 0)];
    ++by_index[hkt::data::window_place(places, 1, 0, i)];
    ++by_seed[hkt::data::window_place(places, i, 0, 0)];
  }
  for (const auto& counts : {by_step, by_index, by_seed}) {
    double chi = 0;
    for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
    EXPECT_GT(chi, 23.98);  // 49 degrees of freedom: one in a thousand is below, one in a thousand above
    EXPECT_LT(chi, 85.35);
  }
}

// So many places that a remainder alone would take the first two thirds of them three times out of four.
TEST(Windows, PlacesAreNotBiased) {
  constexpr std::int64_t third = std::int64_t{1} << 61;
  int early = 0;
  constexpr int draws = 20'000;
  for (int i = 0; i < draws; ++i) early += hkt::data::window_place(3 * third, 0, i, 0) < 2 * third ? 1 : 0;
  EXPECT_NEAR(early / double{draws}, 2.0 / 3, 0.012);
}

// Neighbouring steps and rows of a batch: what one is says nothing about the other.
TEST(Windows, PlacesAreIndependent) {
  constexpr int places = 4, steps = 40'000;
  std::array<double, places * places> steps_pair = {}, rows_pair = {};
  for (int step = 0; step < steps; ++step) {
    const auto here = hkt::data::window_place(places, 9, step, 0);
    ++steps_pair[here * places + hkt::data::window_place(places, 9, step + 1, 0)];
    ++rows_pair[here * places + hkt::data::window_place(places, 9, step, 1)];
  }
  for (const auto& pairs : {steps_pair, rows_pair}) {
    for (const double count : pairs) EXPECT_NEAR(count / steps, 1.0 / 16, 0.006);
  }
}

TEST(Windows, TheFirstAndTheLastPlaceAreThere) {
  const auto only = hkt::data::make_windows(counting(9), 8, 4, 0, 0);
  EXPECT_TRUE(at::equal(only.tokens, at::arange(8).expand({4, 8}))) << "there is but one place";
  const auto two = hkt::data::make_windows(counting(10), 8, 64, 0, 0).tokens.select(1, 0);
  EXPECT_EQ(two.min().item<std::int64_t>(), 0);
  EXPECT_EQ(two.max().item<std::int64_t>(), 1);
}

TEST(Windows, AStreamThatIsTooShort) {
  const auto message = [](auto work) { return message_of<std::invalid_argument>(work); };
  const std::string expected = "the stream has 8 tokens; a window of length 8 needs at least 9.";
  EXPECT_EQ(message([] { hkt::data::make_windows(counting(8), 8, 1, 0, 0); }), expected);
  EXPECT_EQ(message([] { hkt::data::WindowQueue(counting(8), 8, 1, 0, 0, 5); }), expected);
  EXPECT_EQ(message([] { hkt::data::make_windows({}, 1, 1, 0, 0); }),
            "the stream has 0 tokens; a window of length 1 needs at least 2.");
  expect_within("the length of a window is 0", message([] { hkt::data::make_windows(counting(8), 0, 1, 0, 0); }));
}

TEST(Windows, AQueueGivesTheSameWhereverItBegins) {
  const auto stream = counting(250);
  constexpr std::int64_t length = 16, batch = 4, seed = 11, end = 30;
  for (const std::int64_t first : {0, 13, 29, 30}) {
    hkt::data::WindowQueue queue(stream, length, batch, seed, first, end);
    for (auto step = first; step < end; ++step) {
      const auto next = queue.next();
      ASSERT_TRUE(next.has_value());
      expect_same(next.value_or(hkt::data::Batch()), hkt::data::make_windows(stream, length, batch, seed, step));
    }
    EXPECT_FALSE(queue.next());
    EXPECT_FALSE(queue.next());
  }
  hkt::data::WindowQueue left_early(stream, length, batch, seed, 0, 1'000'000);  // must not hang when it is destroyed
  EXPECT_TRUE(left_early.next());
}

TEST(Windows, WhatIsThrownAheadOfTimeComesInItsTurn) {
  int made = 0;
  hkt::data::Prefetch batches([&]() -> std::optional<hkt::data::Batch> {
    if (made == 2) throw std::runtime_error("out of order");
    ++made;
    return hkt::data::Batch{};
  });
  EXPECT_TRUE(batches.next());
  EXPECT_TRUE(batches.next());
  EXPECT_EQ(message_of<std::runtime_error>([&] { batches.next(); }), "out of order");
}

// ---- windows for evaluation

TEST(ScoredWindows, ScoreEveryTokenButTheFirstOnce) {
  for (std::int64_t length = 1; length <= 33; ++length) {
    for (std::int64_t tokens = 0; tokens <= 140; ++tokens) {
      std::vector<int> scored(static_cast<std::size_t>(tokens));
      for (const auto& window : hkt::data::scored_windows(tokens, length)) {
        ASSERT_GE(window.begin, 0);
        ASSERT_GE(window.scored_from, 0);
        ASSERT_LE(window.length, length);
        ASSERT_LT(window.scored_from, window.length) << "a window that scores nothing is of no use";
        ASSERT_TRUE(window.begin == 0 || 2 * (window.scored_from + 1) > length) << "more than half a context";
        for (auto i = window.scored_from; i < window.length; ++i) ++scored.at(window.begin + i + 1);
      }
      for (std::int64_t i = 0; i < tokens; ++i) {
        ASSERT_EQ(scored[i], i == 0 ? 0 : 1) << "token " << i << " of " << tokens << ", length " << length;
      }
    }
  }
}

TEST(ScoredWindows, ByHand) {
  const auto text = [](std::int64_t tokens, std::int64_t length) {
    std::string all;
    for (const auto& [begin, from, inputs] : hkt::data::scored_windows(tokens, length)) {
      all += std::to_string(begin) + "+" + std::to_string(from) + ".." + std::to_string(inputs) + " ";
    }
    return all;
  };
  EXPECT_EQ(text(9, 4), "0+0..4 2+2..4 4+2..4 ");
  EXPECT_EQ(text(10, 4), "0+0..4 2+2..4 4+2..4 6+2..3 ") << "a ragged end";
  EXPECT_EQ(text(9, 5), "0+0..5 3+2..5 ");
  EXPECT_EQ(text(3, 8), "0+0..2 ");
  EXPECT_EQ(text(1, 8), "");
  EXPECT_EQ(text(0, 8), "");
  expect_within("the length of a window is 0",
                message_of<std::invalid_argument>([] { hkt::data::scored_windows(5, 0); }));
}

TEST(ScoredWindows, AsABatch) {
  const auto stream = counting(10);
  const auto windows = hkt::data::scored_windows(10, 4);
  const auto batch = hkt::data::make_windows(stream, std::span(windows).subspan(2), 4);
  EXPECT_TRUE(at::equal(batch.tokens, at::tensor({4, 5, 6, 7, 6, 7, 8, 0}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({5, 6, 7, 8, 7, 8, 9, 0}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(batch.lengths, at::tensor({4, 3}, at::kLong)));
  EXPECT_EQ(batch.valid_tokens, 7);
}

}  // namespace
