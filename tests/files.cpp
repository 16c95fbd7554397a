// SPDX-License-Identifier: Apache-2.0
// Files and the words in them: what is safe to print, lines in bounded memory, pipes and links, files written whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "errors.h"
#include "files/delimited.h"
#include "files/json_fields.h"
#include "files/line_reader.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "files/whole_file.h"

namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path path(const std::string& name) const { return folder_ / name; }
  fs::path holding(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("hkt-files-" + std::to_string(::getpid()));
};

// ---- words

TEST(Words, WhatIsHarmlessStaysAsItIs) {
  for (const std::string text : {"", "plain", "Grüße, 日本, 😀", "back\\slash", "\"quoted\""}) {
    EXPECT_EQ(hkt::printable(text), text);
    EXPECT_TRUE(hkt::is_utf8(text));
  }
}

TEST(Words, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(hkt::printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(hkt::printable("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(hkt::printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(hkt::printable("\xc2\x9b"), "\\x9b");        // CSI as one character
  EXPECT_EQ(hkt::printable("\xe2\x80\xae"), "\\u202e");  // right to left from here on
  EXPECT_EQ(hkt::printable("\xe2\x81\xa6"), "\\u2066");
}

TEST(Words, BytesThatAreNotUtf8AreEscaped) {
  for (const std::string bytes :
       {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88"}) {
    EXPECT_FALSE(hkt::is_utf8(bytes));
    EXPECT_TRUE(hkt::is_utf8(hkt::printable(bytes)));
    EXPECT_EQ(hkt::printable(bytes).substr(0, 2), "\\x");
  }
  EXPECT_EQ(hkt::printable("\xc3("), "\\xc3(");
}

TEST(Words, QuotesAreShortAndCutBetweenCharacters) {
  EXPECT_EQ(hkt::quote("a\"b\n"), "\"a\\\"b\\n\"");
  std::string umlauts = "x";
  for (int i = 0; i < 60; ++i) umlauts += "ü";
  const auto shown = hkt::quote(umlauts);
  EXPECT_TRUE(hkt::is_utf8(shown));
  EXPECT_EQ(shown.find("\\x"), std::string::npos);
  EXPECT_TRUE(shown.ends_with("…\""));
}

TEST(Words, NamesFromFilesMayNameFilesOrNot) {
  for (const std::string good : {"hkt", "hkt-seed0", "standard-seed0-learning_rate=0.001", "größer"})
    EXPECT_TRUE(hkt::is_plain_name(good));
  for (const std::string bad : {"", ".", "..", "../x", "/x", "a/b", "a\\b", ".hidden", "a\nb", "\xff"})
    EXPECT_FALSE(hkt::is_plain_name(bad));
  EXPECT_FALSE(hkt::is_plain_name(std::string(129, 'x')));
}

// ---- JSON

// In processor time, which does not run while others have the processor.
TEST(Json, ManyMembersTakeLinearTime) {
  const auto ticks = [](int members) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{\"a\":[1,2]}";
    const std::clock_t begin = std::clock();
    EXPECT_EQ(hkt::fields::parse(text + "}", "it").size(), static_cast<std::size_t>(members));
    return std::clock() - begin;
  };
  ticks(1000);
  // A hundred times as many take about a hundred times as long, in quadratic time ten thousand times.
  const std::clock_t few = std::max({ticks(1000), ticks(1000), ticks(1000)});
  EXPECT_LT(ticks(100'000), 1000 * few);
}

TEST(Json, EveryKindOfValue) {
  const std::string text = R"({"a": [1, -2, 1.5, true, null, "x", [], {}], "b": {"c": {"d": [[1], [2]]}}})";
  EXPECT_EQ(hkt::fields::parse(text, "it"), nlohmann::json::parse(text));
  EXPECT_EQ(hkt::fields::parse("7", "it"), 7);
  for (const std::string bad : {"", "{", "[1,]", "{} {}", "{\"a\":1,\"a\":2}", "\xff", "nul"}) {
    EXPECT_THROW(hkt::fields::parse(bad, "it"), std::invalid_argument) << bad;
  }
  EXPECT_NO_THROW(hkt::fields::parse(std::string(64, '[') + std::string(64, ']'), "it"));
  EXPECT_THROW(hkt::fields::parse(std::string(66, '[') + std::string(66, ']'), "it"), std::invalid_argument);
}

TEST(Json, NamesThatAreNotUtf8CanBeWritten) { EXPECT_TRUE(hkt::is_utf8(hkt::fields::dump({{"folder", "r\xffn"}}))); }

// ---- lines

std::vector<std::pair<std::string, bool>> lines_of(const fs::path& path, std::size_t longest) {
  hkt::LineReader reader(path, longest);
  std::vector<std::pair<std::string, bool>> lines;
  while (const auto line = reader.next()) lines.emplace_back(line->text, line->cut);
  return lines;
}

TEST_F(Files, LinesOfEveryEnding) {
  using Lines = std::vector<std::pair<std::string, bool>>;
  EXPECT_EQ(lines_of(holding("none", ""), 10), Lines{});
  EXPECT_EQ(lines_of(holding("one", "a"), 10), (Lines{{"a", false}}));
  EXPECT_EQ(lines_of(holding("two", "a\n\nb\r\n"), 10), (Lines{{"a", false}, {"", false}, {"b", false}}));
  EXPECT_EQ(lines_of(holding("long", "0123456789\n01234567890\nx\r\r\n"), 10),
            (Lines{{"0123456789", false}, {"0123456789", true}, {"x\r", false}}));
  EXPECT_EQ(lines_of(holding("ends", "0123456789\r\n"), 10), (Lines{{"0123456789", false}}));
  const std::string large(200'000, 'y');  // in several pieces
  EXPECT_EQ(lines_of(holding("large", large + "\n" + large + "\nend"), 1'000'000),
            (Lines{{large, false}, {large, false}, {"end", false}}));
  EXPECT_EQ(lines_of(path("large"), 5), (Lines{{"yyyyy", true}, {"yyyyy", true}, {"end", false}}));
}

// ---- regular files

TEST_F(Files, APipeIsNeitherReadNorWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0666), 0);
  EXPECT_THROW(hkt::read_file(path("pipe")), std::runtime_error);
  EXPECT_THROW(hkt::MappedFile{path("pipe")}, std::runtime_error);
  EXPECT_THROW(hkt::open_regular(path("pipe"), O_WRONLY), std::runtime_error);
  EXPECT_THROW(hkt::read_file("/dev/zero"), std::runtime_error);
  EXPECT_THROW(hkt::read_file(path("")), std::runtime_error);
}

TEST_F(Files, LinksAreReadAndNotWritten) {
  holding("victim", "precious");
  fs::create_symlink(path("victim"), path("link"));
  EXPECT_EQ(hkt::read_file(path("link")), "precious");
  expect_within("symbolic link",
                message_of<std::runtime_error>([&] { hkt::open_regular(path("link"), O_WRONLY | O_CREAT); }));
  EXPECT_THROW(hkt::read_file(path("victim"), 0, 7), std::runtime_error);
  EXPECT_EQ(hkt::read_file(path("victim"), 0, 8), "precious");
  EXPECT_EQ(hkt::read_file(path("victim"), 3), "cious");
}

TEST_F(Files, TemporaryNamesCannotBeForeseen) {
  hkt::WholeFile first(path("file")), second(path("file"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path(""))) names.push_back(entry.path().filename());
  ASSERT_EQ(names.size(), 2U);
  EXPECT_NE(names[0], names[1]);
  for (const auto& name : names) {
    EXPECT_EQ(name.find(std::to_string(::getpid()) + "-"), std::string::npos);
    EXPECT_EQ(name.size(), std::string("file.partial-0123456789abcdef").size());
  }
}

TEST_F(Files, WhatKilledWritersLeftIsRemovedAndNothingElse) {
  holding("a.partial-1", "");
  holding("b", "");
  fs::create_directories(path("c.partial-2/inside"));
  fs::create_symlink(path("b"), path("d.partial-3"));
  hkt::remove_partial_files(path(""));
  EXPECT_FALSE(fs::exists(path("a.partial-1")));
  EXPECT_FALSE(fs::is_symlink(path("d.partial-3")));
  EXPECT_TRUE(fs::exists(path("b")));
  EXPECT_TRUE(fs::exists(path("c.partial-2/inside")));
}

// ---- CSV

// "a|b;c|d;", and what is wrong after an exclamation mark.
std::string records_of(const std::string& text, char separator = ',', bool quotes = true) {
  hkt::DelimitedReader reader(text, separator, quotes);
  std::string all;
  while (const auto record = reader.next()) {
    for (const auto& field : record->fields) all += (&field == &record->fields.front() ? "" : "|") + field;
    all += record->trouble.empty() ? ";" : "!" + record->trouble;
    if (!record->trouble.empty()) break;
  }
  return all;
}

TEST(Delimited, FieldsAndQuotes) {
  EXPECT_EQ(records_of(""), "");
  EXPECT_EQ(records_of("a,b\nc,d"), "a|b;c|d;");
  EXPECT_EQ(records_of("a,b\r\nc,d\r\n"), "a|b;c|d;");
  EXPECT_EQ(records_of("a,\r\n,\n"), "a|;|;");
  EXPECT_EQ(records_of("\n\na"), ";;a;");
  EXPECT_EQ(records_of("\"a,\"\"b\"\"\nc\",\"\"\r\nd,e"), "a,\"b\"\nc|;d|e;");
  EXPECT_EQ(records_of("\"\"\"\""), "\";");
  EXPECT_EQ(records_of("a\"b,c"), "a\"b|c;");
  EXPECT_EQ(records_of("a\rb\r"), "a\rb;") << "a lone CR is text, but for the last";
  EXPECT_EQ(records_of("\"a\"\r"), "a;");
  EXPECT_EQ(records_of("\"a\tb", '\t', false), "\"a|b;");
}

TEST(Delimited, TroubleAndLines) {
  EXPECT_EQ(records_of("a\n\"b"), "a;!opens a quote in field 1 that is never closed");
  EXPECT_NE(records_of("\"a\" ,b").find("a!has text behind the closing quote of field 1"), std::string::npos);
  hkt::DelimitedReader reader("\"a\n\nb\",c\r\nd\n", ',', true);
  std::vector<std::int64_t> lines;
  while (const auto record = reader.next()) lines.push_back(record->line);
  EXPECT_EQ(lines, (std::vector<std::int64_t>{1, 4}));
}

}  // namespace
