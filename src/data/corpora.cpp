// SPDX-License-Identifier: Apache-2.0
// Reading and checking the official texts.
#include "data/corpora.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "data/config_json.h"
#include "data/digest.h"
#include "files/quote.h"

namespace hkt::data::corpora {
namespace {

namespace fs = std::filesystem;

struct File {
  std::vector<std::string> names;  // under which it is known
  std::string sha1;
};

// In the order of the splits. The SHA-1 of enwik8 is the one on its page, those of WikiText-2 are also in MXNet.
const std::vector<File>& files_of(Task task) {
  static const std::vector<File> enwik8 = {{{"enwik8"}, "57b8363b814821dc9d47aa4d41f58733519076b2"}};
  static const std::vector<File> shakespeare = {
      {{"tinyshakespeare.txt", "input.txt"}, "04486597058d11dcc2c556b1d0433891eb639d2e"}};
  static const std::vector<File> wikitext2 = {{{"wiki.train.tokens"}, "863f29c46ef9d167fff4940ec821195882fe29d1"},
                                              {{"wiki.valid.tokens"}, "0418625c8b4da6e4b5c7a0b9e78d4ae8f7ee5422"},
                                              {{"wiki.test.tokens"}, "c7b8ce0aa086fb34dab808c5c49224211eb2b172"}};
  return task == Task::enwik8 ? enwik8 : (task == Task::shakespeare ? shakespeare : wikitext2);
}

[[noreturn]] void refuse(Task task, const fs::path& source, const std::string& why) {
  throw std::invalid_argument(source.string() + " is not the official " + task_name(task) + ": " + why + ".");
}

bool is_archive(const fs::path& source) {
  const auto ending = source.extension();
  return ending == ".zip" || ending == ".tar" || ending == ".tgz" || source.stem().extension() == ".tar";
}

// The place in files_of of a file in a folder or archive; the number of files if it is none of them.
std::size_t place_of(Task task, const std::string& path) {
  const auto& files = files_of(task);
  const auto name = fs::path(path).filename().string();
  const auto found = std::find_if(files.begin(), files.end(), [&](const File& file) {
    return std::find(file.names.begin(), file.names.end(), name) != file.names.end();
  });
  return static_cast<std::size_t>(found - files.begin());
}

// The content of each file, in the order of files_of.
std::vector<std::string> contents_of(Task task, const fs::path& source, const Notify& notify) {
  std::map<std::size_t, std::string> contents;
  const auto take = [&](const std::string& name, std::string bytes) {
    const auto fresh = contents.emplace(place_of(task, name), std::move(bytes)).second;
    if (!fresh) refuse(task, source, "it has " + quote(fs::path(name).filename().string()) + " twice");
  };
  const auto& files = files_of(task);
  if (files.size() == 1 && fs::is_regular_file(source) && !is_archive(source)) {
    contents[0] = read_compressed(source);
  } else {
    read_files(source, wanted(task), take, notify);
  }
  std::vector<std::string> ordered;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!contents.contains(i)) refuse(task, source, "it has no " + files[i].names.front());
    ordered.push_back(std::move(contents[i]));
  }
  return ordered;
}

void check(Task task, const fs::path& source, const File& file, std::string_view content) {
  const auto sum = digest(Digest::sha1, content);
  if (sum == file.sha1) return;
  refuse(task, source,
         (files_of(task).size() == 1 ? "it" : file.names.front()) + " has " + std::to_string(content.size()) +
             " bytes with the SHA-1 " + sum + ", and the official one has the SHA-1 " + file.sha1 +
             " (the task lm takes other texts)");
}

void add_bytes(std::string_view bytes, Sequences& sequences) {
  sequences.add({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, 0);
}

}  // namespace

Wanted wanted(Task task) {
  return [task](const std::string& name) { return place_of(task, name) < files_of(task).size(); };
}

Prepared read(Task task, const fs::path& source, const Notify& notify) {
  const auto contents = contents_of(task, source, notify);
  for (std::size_t i = 0; i < contents.size(); ++i) check(task, source, files_of(task)[i], contents[i]);
  Prepared prepared;
  prepared.labels = {"text"};
  if (task == Task::enwik8) {
    constexpr std::size_t train_end = 90'000'000, validation_end = 95'000'000;
    const std::string_view all = contents.front();
    add_bytes(all.substr(0, train_end), prepared.train);
    add_bytes(all.substr(train_end, validation_end - train_end), prepared.validation);
    add_bytes(all.substr(validation_end), prepared.test);
    return prepared;
  }
  prepared.train.add_document(contents.front());
  if (task == Task::wikitext2) {
    prepared.validation.add_document(contents[1]);
    prepared.test.add_document(contents[2]);
  }
  return prepared;
}

}  // namespace hkt::data::corpora
