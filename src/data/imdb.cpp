// SPDX-License-Identifier: Apache-2.0
// Reading IMDB's reviews: one file each, in a folder named after its label.
#include "data/imdb.h"

#include <map>
#include <stdexcept>

#include "data/archive.h"
#include "files/quote.h"

namespace hkt::data::imdb {
namespace {

namespace fs = std::filesystem;

// The last three parts of a path: train or test, neg or pos, and the file; all empty if it is anything else.
struct Place {
  std::string split, label, file;
};

Place place_of(const std::string& name) {
  const fs::path path = name;
  Place place{path.parent_path().parent_path().filename(), path.parent_path().filename(), path.filename()};
  const bool known = (place.split == "train" || place.split == "test") &&
                     (place.label == "neg" || place.label == "pos") && place.file.ends_with(".txt");
  return known ? place : Place{};
}

[[noreturn]] void refuse(const fs::path& source, const std::string& why) {
  throw std::invalid_argument(source.string() + " is not IMDB's folder of reviews: " + why + ".");
}

void add(Sequences& sequences, const std::map<std::string, std::string>& reviews, std::int64_t label) {
  for (const auto& [name, text] : reviews) {
    sequences.add({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, label);
  }
}

}  // namespace

bool wanted(const std::string& name) { return !place_of(name).split.empty(); }

Prepared read(const fs::path& source, const Notify& notify) {
  std::map<std::string, std::map<std::string, std::string>> reviews;
  const auto take = [&](const std::string& name, std::string bytes) {
    const auto place = place_of(name);
    if (bytes.empty()) refuse(source, quote(name) + " is empty");
    if (bytes.find('\0') != std::string::npos) refuse(source, quote(name) + " contains the byte 0 and is not text");
    const bool fresh = reviews[place.split + "/" + place.label].emplace(place.file, std::move(bytes)).second;
    if (!fresh) refuse(source, "it has " + quote(place.split + "/" + place.label + "/" + place.file) + " twice");
  };
  read_files(source, wanted, take, notify);
  for (const char* folder : {"train/neg", "train/pos", "test/neg", "test/pos"}) {
    if (reviews[folder].empty()) refuse(source, std::string("it has no ") + folder + "/*.txt");
  }
  Prepared prepared;
  prepared.labels = {"neg", "pos"};
  for (std::int64_t label = 0; label < 2; ++label) {
    add(prepared.train, reviews["train/" + prepared.labels[label]], label);
    add(prepared.test, reviews["test/" + prepared.labels[label]], label);
  }
  return prepared;
}

}  // namespace hkt::data::imdb
