// SPDX-License-Identifier: Apache-2.0
// The table of official downloads, and fetching them.
#include "data/official.h"

#include <algorithm>
#include <stdexcept>

#include "data/config_json.h"
#include "data/digest.h"
#include "data/download.h"
#include "data/packed.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "files/whole_file.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t md5_digits = 32;

// Where the MD5 of an archive other than the official one is kept, in the format of md5sum.
fs::path note_of(const Official& set) {
  auto path = archive_of(set);
  path += ".md5";
  return path;
}

void write_note(const Official& set, const std::string& sum) {
  const auto line = sum + "  " + archive_of(set).filename().string() + "\n";
  WholeFile file(note_of(set));
  file.write(line.data(), line.size());
  file.commit();
}

bool is_md5(const std::string& text) {
  return text.size() == md5_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

const std::string& checked(const std::string& md5) {
  if (!is_md5(md5)) {
    throw std::invalid_argument("--md5 is " + quote(md5) + "; it must be 32 digits 0 to 9 and a to f.");
  }
  return md5;
}

}  // namespace

const std::vector<Official>& official() {
  static const std::vector<Official> sets = {
      {Task::scifar, "scifar", "sequential CIFAR-10: 60,000 grey images, 1,024 pixels each, 10 classes",
       "https://www.cs.toronto.edu/~kriz/cifar.html", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
       "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171},
      {Task::imdb, "imdb", "IMDB: 50,000 film reviews as bytes, negative or positive",
       "https://ai.stanford.edu/~amaas/data/sentiment/",
       "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", "aclImdb_v1.tar.gz",
       "7c2ac02c03563afcf9b574c7e56c153a", 84125825},
      {Task::enwik8, "enwik8", "enwik8: the first 100 million bytes of the Wikipedia of 2006, for language models",
       "http://mattmahoney.net/dc/textdata.html", "http://mattmahoney.net/dc/enwik8.zip", "enwik8.zip",
       "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc", 36445475},
      {Task::shakespeare, "shakespeare", "tiny Shakespeare: a million bytes of plays, for language models",
       "https://github.com/karpathy/char-rnn",
       "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
       "tinyshakespeare.txt", "6fb458f1232090904fb40fe944165e91", 1115394},
      // The same archive was on S3 (research.metamind.io), which refuses since 2024; this is its first author's copy.
      {Task::wikitext2, "wikitext2", "WikiText-2: 13 million bytes of Wikipedia articles, for language models",
       "https://huggingface.co/datasets/Salesforce/wikitext", "https://wikitext.smerity.com/wikitext-2-v1.zip",
       "wikitext-2-v1.zip", "542ccefacc6c27f945fb54453812b3cd", 4475746}};
  return sets;
}

const Official& official(Task task) {
  const auto found = std::find_if(official().begin(), official().end(), [&](auto& set) { return set.task == task; });
  if (found == official().end()) {
    throw std::invalid_argument("the task " + task_name(task) + " has no official archive.");
  }
  return *found;
}

fs::path archive_of(const Official& set) { return data_folder() / "downloads" / set.file; }

std::string digest_of(const Official& set) {
  if (!fs::exists(note_of(set))) return set.digest;
  const auto sum = read_file(note_of(set)).substr(0, md5_digits);
  return is_md5(sum) ? sum : set.digest;
}

bool fetch(const Official& set, const std::string& url, const std::string& md5, const Notify& notify) {
  const auto archive = archive_of(set);
  const auto sum = md5.empty() ? set.digest : checked(md5);
  make_folder(archive.parent_path());
  const bool here = fs::exists(archive) && digest_of_file(kind_of(sum), archive) == sum;
  if (!here) {
    Download wanted{url.empty() ? set.url : url, archive, sum};
    if (sum == set.digest) wanted.most_bytes = set.bytes;
    download(wanted, notify);
  }
  fs::remove(note_of(set));
  if (sum != set.digest) write_note(set, sum);
  return !here;
}

}  // namespace hkt::data
