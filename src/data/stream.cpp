// SPDX-License-Identifier: Apache-2.0
// Loading streams: the packed file, and where its tokens are split.
#include "data/stream.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "data/config_json.h"
#include "data/lm.h"
#include "data/packed.h"
#include "data/prepare.h"

namespace hkt::data {
namespace {

// Takes the last tokens off a stream.
Stream cut_end(Stream& stream, std::size_t count) {
  const auto left = stream.tokens.size() - count;
  Stream end{stream.tokens.subspan(left), stream.owner};
  stream.tokens = stream.tokens.first(left);
  return end;
}

std::string fingerprint_of(const Streams& streams) {
  const auto train = streams.train.tokens, validation = streams.validation.tokens;
  const std::array<std::uint64_t, 2> sizes = {train.size(), validation.size()};
  return checksum_of({std::as_bytes(std::span(sizes)), std::as_bytes(train), std::as_bytes(validation)});
}

}  // namespace

Streams load_streams(const DataConfig& config, const Notify& notify) {
  if (!is_stream(config.task)) {
    throw std::invalid_argument("the task " + task_name(config.task) +
                                " has sequences with labels; a language model needs a stream, such as lm or enwik8.");
  }
  auto [path, packed, made, notices] = obtain(config, notify);
  Streams streams;
  streams.train = {packed.train.tokens, packed.train.owner};
  streams.validation = {packed.validation.tokens, packed.validation.owner};
  streams.test = {packed.test.tokens, packed.test.owner};
  if (packed.validation.size() == 0) {
    const auto share = static_cast<std::size_t>(config.validation * static_cast<double>(packed.train.tokens.size()));
    if (packed.test.size() == 0) streams.test = cut_end(streams.train, share);
    streams.validation = cut_end(streams.train, share);
  }
  streams.fingerprint = fingerprint_of(streams);
  streams.vocab = packed.vocab;
  streams.documents = packed.train.size() + packed.validation.size() + packed.test.size();
  streams.notices = std::move(notices);
  return streams;
}

FileStream load_file_stream(const std::string& file, Task trained_on, const Notify& notify) {
  DataConfig config;
  config.task = Task::lm;
  config.train = file;
  auto prepared = lm::read(config, notify);
  auto& tokens = prepared.train.tokens;
  if (trained_on == Task::enwik8) std::erase(tokens, 0);
  if (tokens.size() < 2) throw std::invalid_argument(file + " has a single byte; the first one is not predicted.");
  const auto kept = std::make_shared<const std::vector<std::uint8_t>>(std::move(tokens));
  return {{*kept, kept}, std::move(prepared.notices)};
}

}  // namespace hkt::data
