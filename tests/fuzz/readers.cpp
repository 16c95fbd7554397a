// SPDX-License-Identifier: Apache-2.0
// Readers, called as the library and the program call them.
#include <ATen/ATen.h>

#include <functional>
#include <stdexcept>

#include "data/archive.h"
#include "data/cifar.h"
#include "data/imdb.h"
#include "data/listops_expression.h"
#include "data/listops_file.h"
#include "data/lm.h"
#include "data/packed.h"
#include "data/text.h"
#include "experiments/record.h"
#include "experiments/results.h"
#include "files/delimited.h"
#include "files/quote.h"
#include "hkt/config.h"
#include "hkt/safetensors.h"
#include "scratch.h"
#include "targets.h"
#include "train/metrics.h"

namespace fuzz {
namespace {

// What a reader promises: a result, or this kind of error with a sentence on one line.
template <typename Error>
void expect_result_or(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.empty() || what != hkt::printable(what) || what.find("json.exception") != std::string::npos)
      fail("an error is not a sentence on one line: " + hkt::printable(what));
  }
}

const MemoryFile& memory_file() {
  static const MemoryFile file;
  return file;
}
const Folder& folder() {
  static const Folder folder;
  return folder;
}

void read_config(const std::string& input) {
  expect_result_or<std::invalid_argument>([&] {
    const auto config = hkt::Config::from_json(input);
    require(hkt::Config::from_json(config.to_json()) == config, "a config does not survive being written and read");
  });
}

void read_safetensors(const std::string& input) {
  expect_result_or<std::runtime_error>([&] {
    for (const auto& [name, tensor] : hkt::load_safetensors(memory_file().hold(input)).tensors) {
      if (tensor.numel() > 0) tensor.to(at::kDouble).sum();
    }
  });
}

void check_part(const hkt::data::PackedPart& part, std::int64_t labels) {
  for (std::int64_t i = 0; i < part.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto begin = part.offsets[at], end = part.offsets[at + 1], label = part.labels[at];
    require(0 <= begin && begin <= end && end <= std::ssize(part.tokens),
            "a packed sequence lies outside of its tokens");
    require(0 <= label && label < labels, "a packed sequence has a label that does not exist");
  }
}

void read_packed(const std::string& input) {
  expect_result_or<std::runtime_error>([&] {
    const auto packed = hkt::data::load_packed(memory_file().hold(input));
    for (const auto* part : {&packed.train, &packed.validation, &packed.test})
      check_part(*part, std::ssize(packed.labels));
  });
}

void check_sequences(const hkt::data::Sequences& sequences, std::int64_t labels) {
  require(std::ssize(sequences.offsets) == sequences.size() + 1, "offsets and labels differ in number");
  require(sequences.offsets.back() == std::ssize(sequences.tokens), "the last sequence does not end with the tokens");
  for (const auto label : sequences.labels) require(0 <= label && label < labels, "a label does not exist");
}

void read_prepared(const std::function<hkt::data::Prepared()>& read) {
  expect_result_or<std::invalid_argument>([&] {
    const auto prepared = read();
    check_sequences(prepared.train, std::ssize(prepared.labels));
    check_sequences(prepared.test, std::ssize(prepared.labels));
  });
}

void read_text(const std::string& input, const char* name) {
  hkt::DataConfig config;
  config.task = hkt::Task::text;
  config.train = config.test = folder().holding(name, input);
  read_prepared([&] { return hkt::data::text::read(config); });
}
void read_tsv(const std::string& input) { read_text(input, "text.tsv"); }
void read_csv(const std::string& input) {
  read_text(input, "text.csv");
  // Without quotes every byte but separators and line ends is in a field.
  hkt::DelimitedReader records(input, ';', false);
  std::size_t bytes = 0;
  while (const auto record = records.next()) {
    for (const auto& field : record->fields) bytes += field.size();
    require(!record->fields.empty(), "a record has no field");
    if (!record->trouble.empty()) return;
  }
  require(bytes <= input.size() && records.position() == input.size(), "a CSV reader left bytes out");
}

// The second line says which columns are asked for: first the label's, then the text's.
void find_columns(const std::string& input) {
  hkt::DelimitedReader records(input, ',', true);
  const auto first = records.next(), second = records.next();
  if (!first || !second || !first->trouble.empty() || second->fields.size() < 2) return;
  for (const auto header : {hkt::Presence::automatic, hkt::Presence::yes, hkt::Presence::no}) {
    hkt::DataConfig config;
    config.task = hkt::Task::text;
    config.train = folder().holding("columns.csv", input);
    config.header = header;
    config.label = second->fields[0];
    config.text = second->fields[1];
    read_prepared([&] { return hkt::data::text::read(config); });
  }
}
void read_jsonl(const std::string& input) { read_text(input, "text.jsonl"); }

void read_documents(const std::string& input) {
  hkt::DataConfig config;
  config.task = hkt::Task::lm;
  config.train = folder().holding("documents.jsonl", input);
  read_prepared([&] { return hkt::data::lm::read(config); });
}

void read_cifar(const std::string& input) {
  read_prepared([&] { return hkt::data::cifar::read(memory_file().hold(input)); });
}
void read_imdb(const std::string& input) {
  read_prepared([&] { return hkt::data::imdb::read(memory_file().hold(input)); });
}

void read_archive(const std::string& input) {
  constexpr hkt::data::Limits limits = {1 << 16, 1 << 18, 1000};
  expect_result_or<std::invalid_argument>([&] {
    std::size_t total = 0;
    hkt::data::read_files(
        memory_file().hold(input), [](const auto&) { return true; },
        [&](const auto&, const std::string& bytes) {
          require(bytes.size() <= limits.file, "a file of an archive is larger than its limit");
          total += bytes.size();
        },
        {}, limits);
    require(total <= limits.total, "an archive is larger than its limit");
  });
}

void read_expression(const std::string& input) {
  using namespace hkt::data;
  expect_result_or<std::invalid_argument>([&] {
    const auto tokens = listops::parse(input);
    const int value = listops::evaluate(tokens);
    require(0 <= value && value <= 9, "an expression has a value that is no digit");
    require(listops::parse(listops::text(tokens)) == tokens, "an expression does not survive being written and read");
  });
}

void read_listops_file(const std::string& input) {
  expect_result_or<std::invalid_argument>([&] { hkt::data::listops::compare_labels(memory_file().hold(input)); });
}

void read_metrics(const std::string& input) { hkt::train::read_metrics(memory_file().hold(input)); }

void read_results(const std::string& input) {
  expect_result_or<std::invalid_argument>(
      [&] { hkt::experiments::results_text(hkt::experiments::read_results(memory_file().hold(input))); });
}

void print_words(const std::string& input) {
  for (const auto& text : {hkt::printable(input), hkt::quote(input)}) {
    require(hkt::is_utf8(text), "what is printed is not UTF-8");
    for (const unsigned char c : text) require(c >= 0x20 && c != 0x7f, "what is printed holds a control character");
  }
  require(hkt::is_plain_name(input) ? input.find('/') == std::string::npos && input != ".." : true, "a name is a path");
}

}  // namespace

std::vector<Target> reader_targets() {
  return {{"config", read_config},
          {"safetensors", read_safetensors, repaired_safetensors},
          {"packed", read_packed, repaired_safetensors},
          {"tsv", read_tsv},
          {"csv", read_csv},
          {"columns", find_columns},
          {"jsonl", read_jsonl},
          {"documents", read_documents},
          {"cifar", read_cifar},
          {"imdb", read_imdb},
          {"archive", read_archive},
          {"expression", read_expression},
          {"listops_file", read_listops_file},
          {"metrics", read_metrics},
          {"results", read_results},
          {"words", print_words}};
}

}  // namespace fuzz
