// SPDX-License-Identifier: Apache-2.0
// Data sets: ListOps and what it means, the user's own texts, the packed files and the splits made of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "data/dataset.h"
#include "data/digest.h"
#include "data/listops.h"
#include "data/listops_expression.h"
#include "data/listops_file.h"
#include "data/prepare.h"
#include "data/summary.h"
#include "data/text.h"
#include "data/verify.h"
#include "errors.h"
#include "hkt/safetensors.h"

namespace {

namespace fs = std::filesystem;
namespace listops = hkt::data::listops;
using hkt::DataConfig;
using hkt::Task;

// A folder of its own for each test, which is $HKT_DATA too.
class Data : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("HKT_DATA", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name).string();
  }
  static std::string bytes(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::size_t cached() const { return std::distance(fs::directory_iterator(path("cache")), fs::directory_iterator()); }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("hkt-data-" + std::to_string(::getpid()));
};

DataConfig small() {
  DataConfig config;
  config.train_samples = 300;
  config.validation_samples = 20;
  config.test_samples = 50;
  config.max_tokens = 64;
  return config;
}

std::vector<std::uint8_t> tokens_of(const hkt::data::Split& split, std::int64_t i) {
  const auto tokens = split.tokens(i);
  return {tokens.begin(), tokens.end()};
}

int value(const std::string& text) { return listops::evaluate(listops::parse(text)); }

std::string parse_error(const std::string& text) {
  return message_of<std::invalid_argument>([&] { listops::parse(text); });
}

// ---- ListOps expressions

TEST(ListOps, ValuesByHand) {
  EXPECT_EQ(value("[MIN 4 2 7 ]"), 2);
  EXPECT_EQ(value("[MAX 4 2 7 ]"), 7);
  EXPECT_EQ(value("[SM 4 9 7 ]"), 0);
  EXPECT_EQ(value("[SM 9 9 ]"), 8);
  EXPECT_EQ(value("[MED 9 1 5 ]"), 5);
  EXPECT_EQ(value("[MED 1 2 ]"), 1) << "1.5 is truncated";
  EXPECT_EQ(value("[MED 9 0 8 1 ]"), 4) << "4.5 is truncated";
  EXPECT_EQ(value("[MED 3 3 0 9 ]"), 3);
  EXPECT_EQ(value("[MAX 2 9 [MIN 4 7 ] 0 ]"), 9);
  EXPECT_EQ(value("[SM [MAX 1 8 ] [MED 2 [MIN 9 6 ] 7 ] 5 ]"), 9);
  EXPECT_EQ(value("( ( ( [MAX 1 ) 2 ) ] )"), 2);
  EXPECT_EQ(value("( ( ( ( ( [SM 6 ) 5 ) 9 ) 0 ) ] )"), 0);
  EXPECT_EQ(value("7"), 7);
}

TEST(ListOps, TokensThereAndBack) {
  const std::string text = "[SM [MAX 1 8 ] [MED 2 [MIN 9 6 ] 0 ] 5 ]";
  const auto tokens = listops::parse(text);
  EXPECT_EQ(tokens, (std::vector<std::uint8_t>{14, 12, 2, 9, 15, 13, 3, 11, 10, 7, 15, 1, 15, 6, 15}));
  EXPECT_EQ(listops::text(tokens), text);
  EXPECT_EQ(listops::parse("  [MIN\t1  2 ]\r\n"), listops::parse("( ( ( [MIN 1 ) 2 ) ] )"));
}

TEST(ListOps, WhatIsNoExpressionIsRefused) {
  expect_within("it is empty", parse_error("  "));
  expect_within("1 \"]\" are missing", parse_error("[MIN 1 2"));
  expect_within("tokens follow after its end", parse_error("[MIN 1 2 ] 3"));
  expect_within("a \"]\" has no operator", parse_error("]"));
  expect_within("[MIN has no arguments", parse_error("[MIN ]"));
  expect_within("it has \"[AVG\"; allowed are", parse_error("[AVG 1 2 ]"));
  expect_within("it has \"10\"", parse_error("[MIN 10 2 ]"));
  expect_within("a \")\" has no \"(\"", parse_error("[MIN 1 2 ] )"));
  expect_within("1 \")\" are missing", parse_error("( [MIN 1 2 ]"));
  expect_within("\\xff…\"", parse_error(std::string(100, '\xff')));
  const std::vector<std::uint8_t> padded = {11, 2, 0, 15};
  EXPECT_THROW(listops::evaluate(padded), std::invalid_argument);
}

TEST(ListOps, NoNestingIsTooDeep) {
  constexpr int deep = 1'000'000;
  std::vector<std::uint8_t> tokens(deep, listops::maximum);
  EXPECT_THROW(listops::evaluate(tokens), std::invalid_argument);
  tokens.push_back(listops::digit_zero + 4);
  tokens.insert(tokens.end(), deep, listops::close);
  EXPECT_EQ(listops::evaluate(tokens), 4);
}

// ---- ListOps data

std::int64_t depth_of(std::span<const std::uint8_t> tokens) {
  std::int64_t open = 0, deepest = 0;
  for (const auto token : tokens) {
    open += token == listops::close ? -1 : (token >= listops::minimum ? 1 : 0);
    deepest = std::max(deepest, open);
  }
  return deepest + 1;  // that of the digits within
}

TEST_F(Data, ListOpsKeepsItsLimitsAndRepeatsNothing) {
  auto config = small();
  config.max_depth = 4;
  config.max_arguments = 3;
  const auto data = hkt::data::load(config);
  EXPECT_EQ(data.vocab, 16);
  EXPECT_EQ(data.labels, (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
  std::set<std::vector<std::uint8_t>> seen;
  std::int64_t deepest = 0;
  for (const auto* split : {&data.train, &data.validation, &data.test}) {
    for (std::int64_t i = 0; i < split->size(); ++i) {
      const auto tokens = tokens_of(*split, i);
      EXPECT_TRUE(seen.insert(tokens).second) << "twice: " << listops::text(tokens);
      EXPECT_GE(std::ssize(tokens), config.min_tokens);
      EXPECT_LE(std::ssize(tokens), config.max_tokens);
      EXPECT_GE(tokens[0], listops::minimum) << "the root is an operator";
      EXPECT_EQ(split->label(i), listops::evaluate(tokens));
      deepest = std::max(deepest, depth_of(tokens));
    }
  }
  EXPECT_EQ(seen.size(), 370u);
  EXPECT_EQ(deepest, config.max_depth) << "the root has depth 1, the deepest digits max_depth";
}

// The grammar's probabilities: an operator with 1/4 below the limit, each operator and number of arguments alike.
TEST(ListOps, TheGrammarsProbabilities) {
  DataConfig config;
  config.train_samples = 20000;
  config.validation_samples = config.test_samples = 1;
  config.min_tokens = 4;
  config.max_tokens = 100000;
  config.max_depth = 1000;
  config.max_arguments = 4;  // 3 on average, times 1/4: below 1, so that expressions end
  const auto train = listops::generate(config).train;
  std::array<double, 16> counts = {};
  for (const auto token : train.tokens) ++counts[token];
  double inner = -static_cast<double>(train.size()), digits = 0;
  for (int token = listops::minimum; token < listops::close; ++token) inner += counts[token];
  for (int token = listops::digit_zero; token < listops::minimum; ++token) digits += counts[token];
  // Short ones are dropped when they come again, which the shares below allow for.
  EXPECT_NEAR(inner / (inner + digits), 0.25, 0.02);
  for (int token = listops::minimum; token < listops::close; ++token) {
    EXPECT_NEAR(counts[token] / (inner + static_cast<double>(train.size())), 0.25, 0.01) << token;
  }
  for (int token = listops::digit_zero; token < listops::minimum; ++token) {
    EXPECT_NEAR(counts[token] / digits, 0.1, 0.005) << token;
  }
}

std::string digest(const hkt::data::Sequences& sequences) {
  std::string all(sequences.tokens.begin(), sequences.tokens.end());
  for (const auto* numbers : {&sequences.offsets, &sequences.labels}) {
    all.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(std::int64_t));
  }
  return hkt::data::digest(hkt::data::Digest::md5, all);
}

// The same seed gives the same data on every machine and in every version: a change here breaks everyone's results.
TEST(ListOps, GoldenDigests) {
  auto config = hkt::data::listops_preset("paper");
  const auto paper = listops::generate(config);
  EXPECT_EQ(digest(paper.train), "eb76fb2069df3fdea70e0dd6639193b2");
  EXPECT_EQ(digest(paper.validation), "23da17f5d7ca145ece281f3b1c5517f1");
  EXPECT_EQ(digest(paper.test), "2c6f943bf995e8471086ffe42973d0ac");
  config = hkt::data::listops_preset("lra");
  config.train_samples = 500;
  config.seed = 7;
  EXPECT_EQ(digest(listops::generate(config).train), "87102430454d19682663eba51521056f");
}

TEST(ListOps, MoreTrainingSamplesLeaveTheOthersAlone) {
  auto config = small();
  const auto few = listops::generate(config);
  config.train_samples *= 2;
  const auto many = listops::generate(config);
  EXPECT_EQ(few.test.tokens, many.test.tokens);
  EXPECT_EQ(few.validation.tokens, many.validation.tokens);
  EXPECT_TRUE(std::equal(few.train.tokens.begin(), few.train.tokens.end(), many.train.tokens.begin()));
  config.seed = 1;
  EXPECT_NE(listops::generate(config).test.tokens, many.test.tokens);
}

TEST(ListOps, Presets) {
  EXPECT_EQ(hkt::data::listops_preset("paper"), DataConfig());
  const auto lra = hkt::data::listops_preset("lra");
  EXPECT_EQ(lra.min_tokens, 501);
  EXPECT_EQ(lra.max_tokens, 1999);
  EXPECT_EQ(lra.train_samples, 96000);
  expect_within("unknown listops preset \"lre\"; it must be one of \"paper\", \"lra\" (nearest: \"lra\")",
                message_of<std::invalid_argument>([] { hkt::data::listops_preset("lre"); }));
}

TEST(ListOps, LimitsThatLeaveNothingAreRefused) {
  const auto message = [](auto change) {
    auto config = small();
    change(config);
    return message_of<std::invalid_argument>([&] { listops::generate(config); });
  };
  expect_within("the longest expression has 7", message([](auto& c) { c.max_depth = 2; }));
  expect_within("max_depth is 1", message([](auto& c) { c.max_depth = 1; }));
  expect_within("data.max_depth is 0", message([](auto& c) { c.max_depth = 0; }));
  expect_within("data.max_arguments is 1", message([](auto& c) { c.max_arguments = 1; }));
  expect_within("data.min_tokens is 65", message([](auto& c) { c.min_tokens = 65; }));
  expect_within("the shortest expression has 4", message([](auto& c) { c.min_tokens = c.max_tokens = 3; }));
  expect_within("at most 1000000", message([](auto& c) { c.max_tokens = 1000001; }));
  // 4 operators and two digits make 400 expressions.
  const auto few = [](auto& c) { c.max_depth = c.max_arguments = 2, c.min_tokens = 4, c.train_samples = 400; };
  expect_within("after 400 of 470 samples almost no new expressions", message(few));
  // There are some of these, but nobody will see one drawn.
  const auto rare = [](auto& c) { c.max_arguments = 2, c.min_tokens = 1000, c.max_tokens = 1022; };
  expect_within("after 0 of 370 samples almost no new expressions", message(rare));
}

// ---- ListOps files

TEST_F(Data, FilesOfExpressionsAreCompared) {
  const auto agreement = listops::compare_labels(write("a.tsv", "2\t[MIN 4 2 ]\r\n\n4\t( ( ( [MAX 4 ) 2 ) ] )"));
  EXPECT_EQ(agreement.lines, 2);
  EXPECT_EQ(agreement.agreeing, 2);
  const auto other = listops::compare_labels(write("b.tsv", "2\t[MIN 4 2 ]\n2\t[MAX 4 2 ]\n"));
  EXPECT_EQ(other.agreeing, 1);
  expect_within("b.tsv, line 2 has the label 2, but its expression has the value 4", other.first_other);
  const auto message = [&](const std::string& content) {
    const auto file = write("c.tsv", content);
    return message_of<std::invalid_argument>([&] { listops::compare_labels(file); });
  };
  expect_within("c.tsv, line 2: there is no tab", message("2\t[MIN 4 2 ]\n2 [MAX 4 2 ]\n"));
  expect_within("c.tsv, line 1: the label is \"12\"", message("12\t[MIN 4 2 ]\n"));
  expect_within("c.tsv, line 1: not a ListOps expression", message("1\t[MIN 4 2\n"));
  expect_within("c.tsv has no line", message(""));
  expect_within("no.tsv is not a readable file",
                message_of<std::invalid_argument>([&] { listops::compare_labels(path("no.tsv")); }));
}

TEST_F(Data, WrittenFilesAgree) {
  const auto obtained = hkt::data::obtain(small());
  listops::write_file(path("test.tsv"), obtained.packed.test);
  const auto agreement = listops::compare_labels(path("test.tsv"));
  EXPECT_EQ(agreement.lines, 50);
  EXPECT_EQ(agreement.agreeing, 50);
}

// Nangia & Bowman's own test set.
TEST(ListOps, AgreesWithNangiaAndBowman) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where listops_test_d20s.tsv.xz lies.";
  const auto agreement = listops::compare_labels(fs::path(folder) / "listops_test_d20s.tsv.xz");
  EXPECT_EQ(agreement.lines, 10000);
  EXPECT_EQ(agreement.agreeing, 10000) << agreement.first_other;
}

// ---- the user's own texts

DataConfig text_config(const std::string& train, const std::string& test = "", double validation = 0) {
  DataConfig config;
  config.task = Task::text;
  config.train = train;
  config.test = test;
  config.validation = validation;
  return config;
}

std::string shown(const hkt::data::Dataset& data, const hkt::data::Split& split) {
  std::string all;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    const auto text = split.tokens(i);
    all += data.labels[split.label(i)] + "=" + std::string(text.begin(), text.end()) + ";";
  }
  return all;
}

TEST_F(Data, TextInBothForms) {
  const auto tsv = write("a.tsv", "\xef\xbb\xbfpos\tgood\tfilm\r\nneg\tbad ä\nüber\tx\npos\tno final newline");
  const auto data = hkt::data::load(text_config(tsv));
  EXPECT_EQ(data.labels, (std::vector<std::string>{"neg", "pos", "über"}));
  EXPECT_EQ(data.vocab, 256);
  EXPECT_EQ(shown(data, data.train), "pos=good\tfilm;neg=bad ä;über=x;pos=no final newline;");
  EXPECT_EQ(data.validation.size(), 0);
  EXPECT_EQ(data.test.size(), 0);

  const auto train =
      write("a.jsonl", "{\"label\": 10, \"text\": \"ten\", \"id\": 1}\n{\"text\": \"ü\\n\", \"label\": \"9\"}\n");
  const auto test = write("b.tsv", "10\tx\n");
  const auto numbers = hkt::data::load(text_config(train, test));
  EXPECT_EQ(numbers.labels, (std::vector<std::string>{"9", "10"})) << "as numbers";
  EXPECT_EQ(shown(numbers, numbers.train), "10=ten;9=ü\n;");
  EXPECT_EQ(shown(numbers, numbers.test), "10=x;");
}

TEST_F(Data, ARowThatNamesTheColumnsIsNoExample) {
  for (const std::string header : {"label\ttext", "Label\tText", "class\treview", "TARGET\tsentence"}) {
    const auto train = write("header.tsv", header + "\r\npos\tgood\nneg\tbad\n");
    const auto data = hkt::data::load(text_config(train, write("test.tsv", header + "\npos\tx\n")));
    EXPECT_EQ(data.labels, (std::vector<std::string>{"neg", "pos"})) << header;
    EXPECT_EQ(data.train.size() + data.validation.size(), 2);
    EXPECT_EQ(data.test.size(), 1);
    ASSERT_EQ(data.notices.size(), 2U);
    expect_within("names its columns", data.notices[0]);
  }
  const auto data = hkt::data::load(text_config(write("none.tsv", "text\tlabel\nlabel\tx\npos\ttext\n")));
  EXPECT_EQ(data.labels.size(), 3U) << "an example that only looks a little like it";
}

TEST_F(Data, LongLines) {
  const std::string text(20'000'000, 'x');
  const auto data = hkt::data::load(text_config(write("a.tsv", "a\t" + text + "\nb\ty\n")));
  EXPECT_EQ(std::ssize(data.train.tokens(0)), std::ssize(text));
}

TEST_F(Data, BadTextIsRefusedWithFileAndLine) {
  const auto message = [&](const std::string& name, const std::string& content) {
    const auto file = write(name, content);
    return message_of<std::invalid_argument>([&] { hkt::data::load(text_config(file)); });
  };
  expect_within("a.tsv, line 2 has no tab", message("a.tsv", "a\tb\nab\n"));
  expect_within("a.tsv, line 1 has an empty label", message("a.tsv", "\tb\n"));
  expect_within("a.tsv, line 1 has an empty text", message("a.tsv", "a\t\r\n"));
  expect_within("a.tsv, line 1 has a label that is not UTF-8", message("a.tsv", "\xff\tb\n"));
  expect_within("a.tsv, line 2 is empty", message("a.tsv", "a\tb\n\nc\td\n"));
  expect_within("a.tsv, line 2 contains the byte 0", message("a.tsv", "a\tb\na\tb" + std::string(1, '\0') + "c\n"));
  expect_within("a.tsv, line 1 has a label of 300 bytes", message("a.tsv", std::string(300, 'a') + "\tb\n"));
  expect_within("a.tsv has no line with a label and a text", message("a.tsv", ""));
  expect_within("a.jsonl, line 2 cannot be read: it is not JSON",
                message("a.jsonl", "{\"label\": 1, \"text\": \"a\"}\n{\n"));
  expect_within("a.jsonl, line 1 cannot be read: it has the key \"text\" twice",
                message("a.jsonl", R"({"label": 1, "text": "a", "text": "b"})"));
  expect_within("a.jsonl, line 1 is not an object with", message("a.jsonl", R"({"label": 1})"));
  expect_within("a.jsonl, line 1 is not an object with", message("a.jsonl", R"([1, "a"])"));
  expect_within("neither a string nor an integer", message("a.jsonl", R"({"label": 1.5, "text": "a"})"));
  expect_within("neither a string nor an integer", message("a.jsonl", R"({"label": true, "text": "a"})"));
  expect_within("has a text that is not a string", message("a.jsonl", R"({"label": 1, "text": 2})"));
  expect_within("contains the byte 0", message("a.jsonl", R"({"label": 1, "text": "a\u0000b"})"));
  expect_within("a.jsonl, line 1 cannot be read", message("a.jsonl", "{\"label\": 1, \"text\": \"\xff\"}"));
  expect_within("a.jsonl, line 1", message("a.jsonl", std::string(1'000'000, '[')));
  expect_within("has the extension \".xlsx\"; it must be .csv, .tsv", message("a.xlsx", "a,b\n"));
  expect_within("has the extension \"\"", message("a", "a\tb\n"));
  std::string labels;
  for (int i = 0; i <= 10000; ++i) labels += std::to_string(i) + "\tx\n";
  expect_within("a.tsv, line 10001 adds label number 10001; at most 10000 different labels", message("a.tsv", labels));
  EXPECT_FALSE(fs::exists(path("cache")) && cached() > 0) << "nothing bad is packed";
}

TEST_F(Data, BadTextConfigs) {
  const auto message = [&](const DataConfig& config) {
    return message_of<std::invalid_argument>([&] { hkt::data::load(config); });
  };
  expect_within("data.train is empty", message(text_config("")));
  expect_within("no.tsv cannot be read", message(text_config(path("no.tsv"))));
  fs::create_directory(path("folder.tsv"));
  expect_within("folder.tsv has no folder in it", message(text_config(path("folder.tsv"))));
  const auto train = write("a.tsv", "a\tb\nc\td\n");
  expect_within("t.tsv, line 2 has the label \"e\", which " + train + " does not have",
                message(text_config(train, write("t.tsv", "c\tx\ne\tx\n"))));
  expect_within("t.tsv has no line", message(text_config(train, write("t.tsv", ""))));
  auto share = text_config(train);
  share.validation = 1;
  expect_within("data.validation is 1", message(share));
}

// ---- CSV, columns, folders

// The data of a file, with changes to its config.
class Columns : public Data {
 protected:
  std::string read(const std::string& name, const std::string& content, const DataConfig& settings = {}) const {
    auto config = settings;
    config.task = Task::text;
    config.validation = 0;
    config.train = write(name, content);
    const auto data = hkt::data::load(config);
    return shown(data, data.train);
  }
  std::string refused(const std::string& name, const std::string& content, const DataConfig& settings = {}) const {
    return message_of<std::invalid_argument>([&] { read(name, content, settings); });
  }
  static DataConfig named(const std::string& label, const std::string& text) {
    DataConfig config;
    config.label = label;
    config.text = text;
    return config;
  }
};

TEST_F(Columns, CsvByTheStandard) {
  EXPECT_EQ(read("a.csv", "\xef\xbb\xbflabel,text\r\npos,\"a, \"\"b\"\"\r\nc\"\r\n\"neg\",5\" tall\r\nneg,\xff\n"),
            "pos=a, \"b\"\r\nc;neg=5\" tall;neg=\xff;");
  EXPECT_EQ(read("b.csv", "pos,good\nneg,bad"), "pos=good;neg=bad;") << "no header";
  EXPECT_EQ(read("c.csv", "id,text,label\n1,good,pos\n2,bad,neg\n"), "pos=good;neg=bad;") << "the usual names";
}

TEST_F(Columns, NamedAndNumbered) {
  const std::string content = "id,review,stars\n1,good,5\n2,bad,1\n";
  EXPECT_EQ(read("a.csv", content, named("stars", "review")), "5=good;1=bad;");
  EXPECT_EQ(read("b.csv", content, named("stars", "")), "5=good;1=bad;") << "review is a usual name";
  EXPECT_EQ(read("c.csv", "1,good,5\n2,bad,1\n", named("3", "2")), "5=good;1=bad;");
  EXPECT_EQ(read("d.csv", "good,5\nbad,1\n", named("2", "")), "5=good;1=bad;") << "the text is the other one";
  auto with_header = named("3", "2");
  with_header.header = hkt::Presence::yes;
  EXPECT_EQ(read("e.csv", content, with_header), "5=good;1=bad;");
  EXPECT_EQ(read("f.tsv", "review\tstars\ngood\t5\nbad\t1\n", named("stars", "review")), "5=good;1=bad;");
  auto quotes = named("", "");
  quotes.quotes = hkt::Presence::yes;
  EXPECT_EQ(read("g.tsv", "a\t\"x\ty\"\nb\tz\n", quotes), "a=x\ty;b=z;");
  auto no_header = named("", "");
  no_header.header = hkt::Presence::no;
  EXPECT_EQ(read("h.tsv", "label\ttext\na\tb\n", no_header), "label=text;a=b;");
  EXPECT_EQ(read("i.jsonl", "{\"stars\": 5, \"review\": \"good\"}\n{\"review\": \"bad\", \"stars\": 1}\n",
                 named("stars", "review")),
            "5=good;1=bad;");
}

TEST_F(Columns, WhatCannotBeReadIsRefused) {
  expect_within("a.csv, line 3 has 3 fields; the first line has 2", refused("a.csv", "a,b\n\"c\",d\ne,f,g\n"));
  expect_within("a.csv, line 4 has 1 fields", refused("a.csv", "a,b\n\"c\nc\",d\ne\n"));
  expect_within("a.csv, line 2 opens a quote in field 2 that is never closed", refused("a.csv", "a,b\nc,\"d\ne,f\n"));
  expect_within("a.csv, line 1 has text behind the closing quote of field 1", refused("a.csv", "\"a\"b,c\n"));
  expect_within("a.csv, line 2 is empty", refused("a.csv", "a,b\n\nc,d\n"));
  expect_within("a.csv, line 2 has an empty text", refused("a.csv", "a,b\nc,\n"));
  expect_within("a.csv, line 2 contains the byte 0", refused("a.csv", "a,b\nc,d" + std::string(1, '\0') + "\n"));
  expect_within("a.csv, line 1 has a label that is not UTF-8", refused("a.csv", "\xff,b\n"));
  expect_within("a.csv, line 1 has more than 10000 fields", refused("a.csv", std::string(20'000, ',')));
  expect_within("a.csv has no line with a label", refused("a.csv", ""));
  expect_within("a.csv has no line with a label", refused("a.csv", "label,text\n"));
  expect_within("a.csv has no column \"body\" (data.text); its columns are \"id\", \"text\"",
                refused("a.csv", "id,text\n1,x\n", named("id", "body")));
  expect_within("a.csv has no column \"4\" (data.label); its first line has 3 fields",
                refused("a.csv", "a,b,c\n", named("4", "2")));
  expect_within("a.csv needs data.label to say which column that is; its columns are \"id\", \"text\", \"x\"",
                refused("a.csv", "id,text,x\n1,x,y\n", named("", "text")));
  expect_within("a.csv needs data.label", refused("a.csv", "a\nb\n"));
  expect_within("a.csv has several columns named \"text\"", refused("a.csv", "id,text,text\n", named("id", "text")));
  expect_within("in the same column", refused("a.csv", "a,b\n", named("1", "1")));
  expect_within("a.jsonl, line 1 is not an object with \"stars\" and \"text\"; its keys are \"label\", \"text\"",
                refused("a.jsonl", "{\"label\": 1, \"text\": \"x\"}\n", named("stars", "")));
  auto header = named("", "");
  header.header = hkt::Presence::yes;
  expect_within("data.header is for .csv and .tsv files",
                refused("a.jsonl", "{\"label\": 1, \"text\": \"x\"}\n", header));
}

TEST_F(Columns, FoldersByClass) {
  for (const char* folder : {"t/pos", "t/neg", "t/.hidden"}) fs::create_directories(path(folder));
  write("t/pos/1.txt", "good\nfilm\n");
  write("t/pos/2.txt", "\xe9t\xe9");
  write("t/neg/1.txt", "bad\r\n");
  write("t/urls.txt", "beside the classes");
  auto config = text_config(path("t"), write("test.csv", "pos,x\n"));
  const auto data = hkt::data::load(config);
  EXPECT_EQ(shown(data, data.train), "neg=bad;pos=good\nfilm;pos=\xe9t\xe9;");
  EXPECT_EQ(shown(data, data.test), "pos=x;");
  write("t/neg/1.txt", "worse");
  const auto changed = hkt::data::load(config);
  EXPECT_EQ(shown(changed, changed.train), "neg=worse;pos=good\nfilm;pos=\xe9t\xe9;") << "not the packed file";

  const auto message = [&] { return message_of<std::invalid_argument>([&] { hkt::data::load(config); }); };
  write("t/neg/2.txt", "");
  expect_within("t/neg/2.txt has an empty text", message());
  fs::remove(path("t/neg/2.txt"));
  fs::create_directory(path("t/none"));
  expect_within("t/none has no file whose name matches \"*.txt\"", message());
  fs::remove(path("t/none"));
  config.test.clear();
  config.text = "review";
  expect_within("data.text is a column", message());
}

// The names of packed files come from fingerprints: those of files without new settings must stay.
TEST_F(Columns, WhatWasPackedIsStillFound) {
  const auto tsv = write("a.tsv", "a\tb\nc\td\n");
  EXPECT_EQ(hkt::data::text::fingerprint(text_config(tsv)), R"({"task":"text","version":2,"train":"tsv )" +
                                                                hkt::data::digest_of_file(hkt::data::Digest::md5, tsv) +
                                                                R"(","test":""})");
}

TEST_F(Columns, Summary) {
  auto config =
      text_config(write("a.tsv", "a\tx\na\tyy\na\tx\nb\tx\nb\tzzzz\nb\tlast\n"), write("t.tsv", "a\tyy\na\tn\n"));
  config.validation = 0.34;  // a: x, yy | x   b: x, zzzz | last
  const auto summary = hkt::data::summarise(hkt::data::load(config), 3);
  ASSERT_EQ(summary.splits.size(), 3U);
  EXPECT_EQ(summary.splits[0].by_class, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(summary.splits[0].repeated, 1);
  EXPECT_EQ(summary.splits[0].cut, 1);
  EXPECT_EQ(summary.splits[0].cut_tokens, 1);
  EXPECT_EQ(summary.splits[0].lengths.longest, 4);
  EXPECT_EQ(summary.splits[0].lengths.median, 1);
  EXPECT_DOUBLE_EQ(summary.splits[0].lengths.mean, 2);
  EXPECT_EQ(summary.contradictions, 2) << "x is both";
  ASSERT_EQ(summary.overlaps.size(), 3U);
  EXPECT_EQ(summary.overlaps[0].sequences, 1) << "training, validation: x";
  EXPECT_EQ(summary.overlaps[1].sequences, 1) << "training, test: yy";
  EXPECT_EQ(summary.overlaps[2].sequences, 0);
  EXPECT_DOUBLE_EQ(summary.largest_share, 0.5);
  const auto sentences = hkt::data::warnings(summary);
  ASSERT_EQ(sentences.size(), 4U);
  expect_within("1 validation sequences are also in training", sentences[0]);
  expect_within("2 training sequences also occur with another label", sentences[2]);
  expect_within("no test sequence has the label \"b\"", sentences[3]);
}

// ---- splits

TEST_F(Data, ValidationIsTheEndOfEachLabel) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "a\ta" + std::to_string(i) + "\n";
  for (int i = 0; i < 3; ++i) lines += "b\tb" + std::to_string(i) + "\n";
  const auto file = write("a.tsv", lines + "c\tc0\n");
  const auto data = hkt::data::load(text_config(file, "", 0.25));
  EXPECT_EQ(shown(data, data.validation), "a=a7;a=a8;a=a9;b=b2;") << "round(2.5), round(.75), and the only c stays";
  EXPECT_EQ(data.train.size(), 10);
  const auto little = hkt::data::load(text_config(file, "", 0.01));
  EXPECT_EQ(shown(little, little.validation), "a=a9;b=b2;") << "at least one";
  const auto much = hkt::data::load(text_config(file, "", 0.999));
  EXPECT_EQ(shown(much, much.train), "a=a0;b=b0;c=c0;") << "at least one stays";
  EXPECT_EQ(cached(), 1u) << "the share is no part of what is packed";
}

TEST_F(Data, Encode) {
  EXPECT_EQ(hkt::data::encode(Task::listops, "[MIN 1 2 ]"), (std::vector<std::uint8_t>{11, 2, 3, 15}));
  EXPECT_EQ(hkt::data::encode(Task::imdb,
                              "\xff"
                              "a"),
            (std::vector<std::uint8_t>{255, 97}));
  EXPECT_EQ(hkt::data::encode(Task::text, "b"), (std::vector<std::uint8_t>{98}));
  EXPECT_THROW(hkt::data::encode(Task::listops, "hello"), std::invalid_argument);
  EXPECT_THROW(hkt::data::encode(Task::scifar, "1 2 3"), std::invalid_argument);
  EXPECT_THROW(hkt::data::encode(Task::text, ""), std::invalid_argument);
  EXPECT_THROW(hkt::data::encode(Task::text, std::string(1, '\0')), std::invalid_argument);
}

// ---- packed files

TEST_F(Data, TheSecondTimeItIsThere) {
  int notified = 0;
  const auto first = hkt::data::obtain(small(), [&](auto, auto, auto&) { ++notified; });
  EXPECT_TRUE(first.made);
  EXPECT_GT(notified, 0);
  const auto second = hkt::data::obtain(small());
  EXPECT_FALSE(second.made);
  EXPECT_EQ(second.path, first.path);
  EXPECT_TRUE(second.notices.empty());
  auto other = small();
  other.seed = 1;
  EXPECT_NE(hkt::data::obtain(other).path, first.path);
  EXPECT_EQ(cached(), 2u);
}

TEST_F(Data, AChangedFileIsReadAnew) {
  const auto file = write("a.tsv", "a\tone\nb\ttwo\n");
  const auto config = text_config(file);
  hkt::data::load(config);
  write("a.tsv", "a\tone\nb\tTWO\n");
  const auto data = hkt::data::load(config);
  EXPECT_EQ(shown(data, data.train), "a=one;b=TWO;");
  EXPECT_TRUE(data.notices.empty());
}

TEST_F(Data, ADamagedFileIsMadeAnew) {
  const auto made = hkt::data::obtain(small());
  const auto whole = bytes(made.path);
  const auto try_with = [&](const std::string& content, const std::string& notice) {
    fs::remove(made.path);
    std::ofstream(made.path, std::ios::binary) << content;
    const auto data = hkt::data::load(small());
    ASSERT_EQ(data.notices.size(), 1u) << notice;
    expect_within(notice, data.notices[0]);
    expect_within(made.path.string(), data.notices[0]);
    EXPECT_EQ(bytes(made.path), whole);
  };
  try_with("", "It was rebuilt.");
  try_with(whole.substr(0, whole.size() / 2), "It was rebuilt.");
  for (std::size_t i = 5; i < whole.size(); i += whole.size() / 16) {
    auto flipped = whole;
    flipped[i] ^= 4;
    try_with(flipped, "It was rebuilt.");
  }
}

// Files that are whole as files, and wrong as data.
TEST_F(Data, AFileThatContradictsItselfIsMadeAnew) {
  const auto made = hkt::data::obtain(small());
  const auto file = hkt::load_safetensors(made.path);
  const auto try_with = [&](const std::string& notice, auto change) {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [name, tensor] : file.tensors) tensors[name] = tensor.clone();
    auto metadata = file.metadata;
    change(tensors, metadata);
    hkt::save_safetensors(made.path, {tensors.begin(), tensors.end()}, metadata);
    const auto data = hkt::data::load(small());
    ASSERT_EQ(data.notices.size(), 1u) << notice;
    expect_within(notice, data.notices[0]);
  };
  try_with("a label is not one of its 10", [](auto& t, auto&) { t["test.labels"][3] = 10; });
  try_with("a label is not one of its 10", [](auto& t, auto&) { t["test.labels"][3] = -1; });
  try_with("a token is not below 16", [](auto& t, auto&) { t["train.tokens"][3] = 16; });
  try_with("ends before it begins", [](auto& t, auto&) { t["train.offsets"][3] = 1'000'000; });
  try_with("ends before it begins", [](auto& t, auto&) { t["train.offsets"][3] = t["train.offsets"][2].clone(); });
  try_with("its offsets do not cover its tokens", [](auto& t, auto&) { t["train.offsets"][0] = -1; });
  try_with("its offsets do not cover its tokens", [](auto& t, auto&) { t["train.offsets"][300] += 1; });
  try_with("the numbers of labels and sequences differ",
           [](auto& t, auto&) { t["train.labels"] = t["train.labels"].narrow(0, 0, 9); });
  try_with("no list \"train.tokens\"", [](auto& t, auto&) { t.erase("train.tokens"); });
  try_with("no list \"train.tokens\"", [](auto& t, auto&) { t["train.tokens"] = t["train.tokens"].to(at::kInt); });
  try_with("it has no training sequences", [](auto& t, auto&) {
    for (const char* name : {"train.tokens", "train.offsets", "train.labels"}) t.erase(name);
  });
  try_with("has no \"labels\"", [](auto&, auto& m) { m.erase("labels"); });
  try_with("its metadata has an invalid \"labels\"", [](auto&, auto& m) { m["labels"] = "{"; });
  try_with("its metadata has an invalid \"vocab\"", [](auto&, auto& m) { m["vocab"] = "\"x\""; });
  try_with("its format is not 1", [](auto&, auto& m) { m["format"] = "2"; });
  try_with("belongs to other data; it was rebuilt", [](auto&, auto& m) { m["fingerprint"] = "{}"; });
}

TEST_F(Data, VerifyFindsAWrongLabel) {
  const auto made = hkt::data::obtain(small());
  ASSERT_EQ(hkt::data::verify(Task::listops).size(), 1u);
  EXPECT_TRUE(hkt::data::verify(Task::listops)[0].good);
  EXPECT_TRUE(hkt::data::verify(Task::imdb).empty());
  const auto file = hkt::load_safetensors(made.path);
  for (const auto& [name, tensor] : file.tensors) {
    if (name == "test.labels") tensor[0] = (tensor[0] + 1) % 10;
  }
  hkt::save_safetensors(made.path, file.tensors, file.metadata);
  const auto finding = hkt::data::verify(Task::listops)[0];
  EXPECT_FALSE(finding.good);
  expect_within("a label differs from the value of its expression", finding.sentence);
}

TEST_F(Data, SeveralMayPrepareAtOnce) {
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto data = hkt::data::load(small());
      if (data.train.size() == 300 && data.notices.empty()) ++right;
    });
  }
  threads.clear();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(cached(), 1u);
}

TEST_F(Data, AFolderThatCannotBe) {
  write("file", "");
  setenv("HKT_DATA", path("file/below").c_str(), 1);
  const auto message = [] { return message_of<std::runtime_error>([] { hkt::data::load(small()); }); };
  expect_within("file/below cannot be created: Not a directory; set HKT_DATA", message());
  setenv("HKT_DATA", path("file").c_str(), 1);
  expect_within("set HKT_DATA to a writable folder", message());
}

// A disk that is full, played by a limit on the size of files.
TEST_F(Data, AFullDisk) {
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit little{4096, usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &little);
  const auto message = message_of<std::runtime_error>([] { hkt::data::load(small()); });
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, handler);
  expect_within("could not be written: File too large", message);
  EXPECT_EQ(cached(), 0u);
}

TEST_F(Data, WhereTheFolderIs) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  unsetenv("HKT_DATA");
  setenv("XDG_CACHE_HOME", path("caches").c_str(), 1);
  EXPECT_EQ(hkt::data::data_folder(), path("caches/hkt"));
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", path("home").c_str(), 1);
  EXPECT_EQ(hkt::data::data_folder(), path("home/.cache/hkt"));
  unsetenv("HOME");
  EXPECT_THROW(hkt::data::data_folder(), std::runtime_error);
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
