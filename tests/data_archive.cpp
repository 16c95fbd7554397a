// SPDX-License-Identifier: Apache-2.0
// Archives and folders: CIFAR-10 and IMDB from all their forms, what is damaged or hostile, checksums, stalled downloads.
#include <ATen/ATen.h>
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/archive.h"
#include "data/cifar.h"
#include "data/dataset.h"
#include "data/digest.h"
#include "data/download.h"
#include "data/imdb.h"
#include "data/prepare.h"
#include "errors.h"

namespace {

namespace fs = std::filesystem;
namespace cifar = hkt::data::cifar;
namespace imdb = hkt::data::imdb;
using hkt::Task;
using hkt::data::Digest;

struct File {
  std::string name, content;
  std::string symbolic = {}, hard = {};
};
using Files = std::vector<File>;

class Archives : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("HKT_DATA", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name) const { return folder_ / name; }

  fs::path unpacked(const std::string& name, const Files& files) const {
    fs::remove_all(path(name));
    for (const auto& file : files) {
      fs::create_directories((path(name) / file.name).parent_path());
      std::ofstream(path(name) / file.name, std::ios::binary) << file.content;
    }
    return path(name);
  }

  // The ending of the name says the form.
  fs::path packed(const std::string& name, const Files& files) const {
    auto* archive = archive_write_new();
    EXPECT_EQ(archive_write_set_format_filter_by_ext(archive, name.c_str()), ARCHIVE_OK) << name;
    EXPECT_EQ(archive_write_open_filename(archive, path(name).c_str()), ARCHIVE_OK);
    for (const auto& file : files) {
      auto* entry = archive_entry_new();
      archive_entry_set_pathname(entry, file.name.c_str());
      archive_entry_set_perm(entry, 0644);
      archive_entry_set_filetype(entry, file.symbolic.empty() ? AE_IFREG : AE_IFLNK);
      archive_entry_set_size(entry, static_cast<la_int64_t>(file.content.size()));
      if (!file.symbolic.empty()) archive_entry_set_symlink(entry, file.symbolic.c_str());
      if (!file.hard.empty()) archive_entry_set_hardlink(entry, file.hard.c_str());
      EXPECT_EQ(archive_write_header(archive, entry), ARCHIVE_OK) << archive_error_string(archive);
      archive_write_data(archive, file.content.data(), file.content.size());
      archive_entry_free(entry);
    }
    archive_write_close(archive);
    archive_write_free(archive);
    return path(name);
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("hkt-archives-" + std::to_string(::getpid()));
};

// ---- CIFAR-10

// A batch of images of one colour each.
std::string batch(const std::vector<std::array<int, 4>>& images) {
  std::string bytes;
  for (const auto& [label, red, green, blue] : images) {
    bytes += static_cast<char>(label);
    for (const int value : {red, green, blue}) bytes += std::string(1024, static_cast<char>(value));
  }
  return bytes;
}

Files small_cifar() {
  const std::string folder = "cifar-10-batches-bin/";
  return {{folder + "batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"},
          {folder + "data_batch_1.bin", batch({{0, 255, 255, 255}, {1, 0, 0, 0}})},
          {folder + "data_batch_2.bin", batch({{2, 100, 0, 0}})},
          {folder + "data_batch_3.bin", batch({{3, 0, 100, 0}})},
          {folder + "data_batch_4.bin", batch({{4, 0, 0, 100}})},
          {folder + "data_batch_5.bin", batch({{9, 10, 20, 30}})},
          {folder + "readme.html", "<html>"},
          {folder + "test_batch.bin", batch({{5, 1, 1, 1}, {6, 2, 2, 2}, {7, 128, 128, 128}})}};
}

void expect_small_cifar(const hkt::data::Prepared& prepared) {
  EXPECT_EQ(prepared.labels[9], "truck");
  EXPECT_EQ(prepared.train.labels, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 9}));
  EXPECT_EQ(prepared.test.labels, (std::vector<std::int64_t>{5, 6, 7}));
  EXPECT_EQ(prepared.train.tokens.size(), 6u * 1024);
  std::vector<int> first;
  for (std::size_t i = 0; i < 6; ++i) first.push_back(prepared.train.tokens[i * 1024]);
  // .2989 · 100 · 255.5 / 255 = 29.95, .587 · … = 58.8, .114 · … = 11.4, and (2.989 + 11.74 + 3.42) · … = 18.18
  EXPECT_EQ(first, (std::vector<int>{255, 0, 29, 58, 11, 18}));
}

TEST_F(Archives, CifarInEveryForm) {
  const auto files = small_cifar();
  expect_small_cifar(cifar::read(unpacked("folder", files)));
  expect_small_cifar(cifar::read(path("folder") / "cifar-10-batches-bin"));
  for (const char* name : {"a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.zip"}) {
    SCOPED_TRACE(name);
    auto shuffled = files;
    std::reverse(shuffled.begin(), shuffled.end());
    expect_small_cifar(cifar::read(packed(name, files)));
    expect_small_cifar(cifar::read(packed(name, shuffled)));
  }
}

TEST_F(Archives, BadCifarIsRefused) {
  const auto message = [&](auto change) {
    auto files = small_cifar();
    change(files);
    const auto archive = packed("bad.tar", files);
    return message_of<std::invalid_argument>([&] { cifar::read(archive); });
  };
  expect_within("bad.tar is not CIFAR-10 in its binary form: it has no data_batch_3.bin",
                message([](auto& files) { files.erase(files.begin() + 3); }));
  expect_within("it has no batches.meta.txt", message([](auto& files) { files.erase(files.begin()); }));
  expect_within("it has \"data_batch_1.bin\" twice", message([](auto& files) { files.push_back(files[1]); }));
  expect_within("data_batch_1.bin has 6145 bytes", message([](auto& files) { files[1].content.pop_back(); }));
  expect_within("data_batch_1.bin has 0 bytes", message([](auto& files) { files[1].content.clear(); }));
  expect_within("gives image 1 the label 10", message([](auto& files) { files[1].content[3073] = 10; }));
  expect_within("has 1 names, not 10", message([](auto& files) { files[0].content = "airplane\n"; }));
  expect_within("it has no batches.meta.txt", message([](auto& files) { files.clear(); }));
}

TEST(Cifar, GreyIsTheFormula) {
  for (int red = 0; red < 256; red += 5) {
    for (int green = 0; green < 256; green += 3) {
      for (int blue = 0; blue < 256; blue += 3) {
        const double value = (.2989 * red + .587 * green + .114 * blue) / 255 * 255.5;
        const int grey = cifar::grey(red, green, blue);
        // Where the formula gives a whole number, rounding decides what floating point makes of it.
        ASSERT_TRUE(grey == std::floor(value + 1e-9)) << red << " " << green << " " << blue;
      }
    }
  }
}

// ---- IMDB

Files small_imdb() {
  return {{"aclImdb/README", "read me"},
          {"aclImdb/train/urls_pos.txt", "http"},
          {"aclImdb/test/neg/0_2.txt", "t neg"},
          {"aclImdb/test/pos/0_10.txt", "t pos"},
          {"aclImdb/train/neg/9_1.txt", "second\xff"},
          {"aclImdb/train/neg/10_1.txt", "first"},
          {"aclImdb/train/pos/0_9.txt", "third"},
          {"aclImdb/train/unsup/0_0.txt", "of no label"}};
}

void expect_small_imdb(const hkt::data::Prepared& prepared) {
  EXPECT_EQ(prepared.labels, (std::vector<std::string>{"neg", "pos"}));
  EXPECT_EQ(std::string(prepared.train.tokens.begin(), prepared.train.tokens.end()), "firstsecond\xffthird");
  EXPECT_EQ(prepared.train.labels, (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(std::string(prepared.test.tokens.begin(), prepared.test.tokens.end()), "t negt pos");
}

TEST_F(Archives, ImdbInEveryForm) {
  const auto files = small_imdb();
  expect_small_imdb(imdb::read(unpacked("folder", files)));
  expect_small_imdb(imdb::read(path("folder") / "aclImdb"));
  for (const char* name : {"a.tar.gz", "a.tar.xz", "a.zip"}) {
    SCOPED_TRACE(name);
    expect_small_imdb(imdb::read(packed(name, files)));
  }
}

TEST_F(Archives, BadImdbIsRefused) {
  const auto message = [&](auto change) {
    auto files = small_imdb();
    change(files);
    const auto archive = packed("bad.zip", files);
    return message_of<std::invalid_argument>([&] { imdb::read(archive); });
  };
  expect_within("bad.zip is not IMDB's folder of reviews: it has no test/pos/*.txt",
                message([](auto& files) { files.erase(files.begin() + 3); }));
  expect_within("0_2.txt\" is empty", message([](auto& files) { files[2].content.clear(); }));
  expect_within("0_2.txt\" contains the byte 0", message([](auto& files) { files[2].content = std::string(3, '\0'); }));
  expect_within("it has \"train/pos/0_9.txt\" twice",
                message([](auto& files) { files.push_back({"other/train/pos/0_9.txt", "x"}); }));
}

// ---- damaged and hostile archives

TEST_F(Archives, WhatLeadsOutIsRefused) {
  const auto message = [&](const File& evil) {
    auto files = small_imdb();
    files.push_back(evil);
    const auto archive = packed("evil.tar", files);
    return message_of<std::invalid_argument>([&] { imdb::read(archive); });
  };
  expect_within("evil.tar is unsafe: its entry \"../evil.txt\" points outside", message({"../evil.txt", "x"}));
  expect_within("points outside the folder", message({"/tmp/evil.txt", "x"}));
  expect_within("points outside the folder", message({"aclImdb/../../evil.txt", "x"}));
  expect_within("points outside the folder", message({"aclImdb/train/../evil.txt", "x"}));
  expect_within("points outside the folder", message({"aclImdb/link", "", "/etc"}));
  expect_within("points outside the folder", message({"aclImdb/link", "", "../../etc"}));
  expect_within("points outside the folder", message({"aclImdb/link", "", "", "/etc/passwd"}));
  expect_within("points outside the folder", message({"aclImdb/link", "", "", "../../etc/passwd"}));
  EXPECT_EQ(message({"aclImdb/link", "", "../aclImdb/README"}), "no error") << "a link that stays within is let be";
  EXPECT_FALSE(fs::exists(path("../evil.txt")));
}

TEST_F(Archives, CutAndDamagedOnesAreRefused) {
  const auto good = packed("a.tar.gz", small_cifar());
  std::ifstream stream(good, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  const auto message = [&](const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
    return message_of<std::invalid_argument>([&] { cifar::read(path(name)); });
  };
  for (std::size_t size = 1; size < bytes.size(); size += bytes.size() / 20) {
    expect_within("cut.tar.gz", message("cut.tar.gz", bytes.substr(0, size)));
  }
  for (std::size_t i = 30; i < bytes.size() - 8; i += bytes.size() / 20) {
    auto flipped = bytes;
    flipped[i] ^= 1;
    expect_within("flip.tar.gz", message("flip.tar.gz", flipped));
  }
  expect_within("cannot be read as an archive", message("text.tar.gz", "this is no archive at all"));
  expect_within("empty.tar.gz", message("empty.tar.gz", ""));
  expect_within("no.tar does not exist", message_of<std::invalid_argument>([&] { cifar::read(path("no.tar")); }));
}

TEST_F(Archives, CompressedFiles) {
  std::ofstream(path("plain"), std::ios::binary) << "as it is\n";
  EXPECT_EQ(hkt::data::read_compressed(path("plain")), "as it is\n");
  std::ofstream(path("empty"), std::ios::binary) << "";
  EXPECT_EQ(hkt::data::read_compressed(path("empty")), "");
}

// ---- packed files of official data

hkt::DataConfig config_of(Task task, const std::string& source) {
  hkt::DataConfig config;
  config.task = task;
  config.source = source;
  return config;
}

TEST_F(Archives, ASourceThatChangesIsReadAnew) {
  auto files = small_imdb();
  const auto folder = unpacked("folder", files);
  const auto config = config_of(Task::imdb, folder);
  const auto first = hkt::data::obtain(config);
  EXPECT_TRUE(first.made);
  ASSERT_EQ(first.notices.size(), 1u);
  expect_within("has 3 training and 2 test examples; the official one has 25000 and 25000", first.notices[0]);
  EXPECT_FALSE(hkt::data::obtain(config).made);
  std::ofstream(folder / "aclImdb/train/pos/1_9.txt") << "one more";
  const auto second = hkt::data::obtain(config);
  EXPECT_TRUE(second.made);
  EXPECT_EQ(second.packed.train.size(), 4);
}

TEST_F(Archives, WithoutASourceWhatWasPackedIsUsed) {
  const auto config = config_of(Task::scifar, "");
  expect_within("the data set scifar is missing", message_of<std::invalid_argument>([&] { hkt::data::load(config); }));
  const auto archive = packed("a.tar.gz", small_cifar());
  const auto made = hkt::data::obtain_from(Task::scifar, archive);
  fs::remove(archive);
  const auto data = hkt::data::load(config);
  EXPECT_EQ(data.train.size() + data.validation.size(), 6);
  EXPECT_EQ(data.vocab, 256);
  EXPECT_EQ(data.labels[0], "airplane");
  fs::resize_file(made.path, 1000);
  expect_within("hkt data fetch scifar", message_of<std::invalid_argument>([&] { hkt::data::load(config); }));
}

template <typename T>
std::string digest(std::span<const T> values) {
  return hkt::data::digest(Digest::md5, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// The digests are those that Python's tarfile and NumPy give.
TEST_F(Archives, TheRealCifar) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where cifar-10-binary.tar.xz lies.";
  const auto made = hkt::data::obtain_from(Task::scifar, fs::path(folder) / "cifar-10-binary.tar.xz");
  EXPECT_TRUE(made.notices.empty());
  EXPECT_EQ(made.packed.train.size(), 50000);
  EXPECT_EQ(digest(made.packed.train.tokens), "ca6375b69875299632b5233e4c573447");
  EXPECT_EQ(digest(made.packed.train.labels), "64a7290ac3c358816975e50453f50b5c");
  EXPECT_EQ(digest(made.packed.test.tokens), "0816b05ebb7e7f6e7cae3babcef41300");
  const auto data = hkt::data::load(config_of(Task::scifar, ""));
  EXPECT_EQ(data.train.size(), 45000);
  EXPECT_EQ(data.validation.size(), 5000);
  std::array<int, 10> counts = {};
  for (std::int64_t i = 0; i < data.validation.size(); ++i) ++counts[data.validation.label(i)];
  for (const int count : counts) EXPECT_EQ(count, 500);
}

TEST_F(Archives, TheRealImdb) {
  const char* folder = std::getenv("HKT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "HKT_TEST_DATA does not say where aclImdb.tar.xz lies.";
  const auto made = hkt::data::obtain_from(Task::imdb, fs::path(folder) / "aclImdb.tar.xz");
  EXPECT_TRUE(made.notices.empty());
  EXPECT_EQ(digest(made.packed.train.tokens), "1a2b0999557f2a2155ffe391c2259e9e");
  EXPECT_EQ(digest(made.packed.test.tokens), "bd5db94ba77bb4fbbc6676aef3f493e3");
  EXPECT_EQ(std::reduce(made.packed.train.labels.begin(), made.packed.train.labels.end()), 12500);
}

// ---- checksums and downloads

TEST(Digests, TheVectorsOfTheStandards) {
  using hkt::data::digest;
  EXPECT_EQ(digest(Digest::md5, ""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(digest(Digest::md5, "abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(digest(Digest::md5, "12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
  EXPECT_EQ(digest(Digest::sha1, "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest(Digest::sha256, "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digests, AreKnownByTheirLength) {
  using hkt::data::kind_of;
  for (const auto kind : {Digest::md5, Digest::sha1, Digest::sha256}) {
    EXPECT_EQ(kind_of(hkt::data::digest(kind, "")), kind) << hkt::data::name_of(kind);
  }
  for (const auto& wrong : {std::string(), std::string(31, '0'), std::string(32, 'g'), std::string(40, 'A')}) {
    expect_within("32 (MD5), 40 (SHA-1) or 64 (SHA-256)", message_of<std::invalid_argument>([&] { kind_of(wrong); }));
  }
}

TEST_F(Archives, DigestsOfFiles) {
  const std::string text(3'000'000, 'x');  // in several pieces
  std::ofstream(path("file"), std::ios::binary) << text;
  for (const auto kind : {Digest::md5, Digest::sha1, Digest::sha256}) {
    EXPECT_EQ(hkt::data::digest_of_file(kind, path("file")), hkt::data::digest(kind, text));
  }
  EXPECT_THROW(hkt::data::digest_of_file(Digest::md5, path("nothing")), std::runtime_error);
}

// ---- downloads that would not end

// Answers every connection with `head` and then `piece`, again and again with a pause between, until it is told to end.
class Server {
 public:
  Server(std::string head, std::string piece, std::chrono::milliseconds pause)
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)), head_(std::move(head)), piece_(std::move(piece)), pause_(pause) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/file";
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    stopped_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  const std::string& url() const { return url_; }

 private:
  void serve() {
    for (int connection = 0; (connection = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(connection)) {
      std::string request(1 << 16, ' ');
      if (::recv(connection, request.data(), request.size(), 0) <= 0) continue;
      bool sent = ::send(connection, head_.data(), head_.size(), MSG_NOSIGNAL) > 0;
      while (sent && !stopped_) {
        sent = ::send(connection, piece_.data(), piece_.size(), MSG_NOSIGNAL) > 0;
        std::this_thread::sleep_for(pause_);
      }
    }
  }

  int listener_;
  std::string head_, piece_, url_;
  std::chrono::milliseconds pause_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

constexpr const char* endless = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

TEST_F(Archives, ADownloadEndsBeyondTheKnownSize) {
  const Server server(endless, std::string(1 << 16, 'x'), std::chrono::milliseconds(0));
  hkt::data::Download download;
  download.url = server.url();
  download.target = path("archive");
  download.digest = std::string(32, '0');
  download.most_bytes = 1'000'000;
  expect_within("more than the allowed 1000000 bytes",
                message_of<std::runtime_error>([&] { hkt::data::download(download); }));
  EXPECT_LE(fs::file_size(path("archive.part")), 1'000'000U);
}

TEST_F(Archives, ADownloadThatOnlyTricklesEnds) {
  const Server server(endless, "x", std::chrono::milliseconds(50));  // always something, never enough
  hkt::data::Download download;
  download.url = server.url();
  download.target = path("archive");
  download.digest = std::string(32, '0');
  download.stall = std::chrono::seconds(1);
  download.attempts = 2;
  download.first_wait = std::chrono::milliseconds(1);
  expect_within("too slow", message_of<std::runtime_error>([&] { hkt::data::download(download); }));
}

// Files that nobody wants count too: they are unpacked all the same.
TEST_F(Archives, WhatUnpacksToTooMuchIsRefused) {
  const Files files = {{"a", std::string(5000, 'a')}, {"b", std::string(5000, 'b')}, {"c", std::string(5000, 'c')}};
  const auto read = [](const fs::path& source, const hkt::data::Limits& limits) {
    return message_of<std::invalid_argument>(
        [&] { hkt::data::read_files(source, [](auto&) { return true; }, [](auto&, auto&&) {}, {}, limits); });
  };
  for (const auto& source :
       {packed("x.tar", files), packed("x.tar.gz", files), packed("x.zip", files), unpacked("x", files)}) {
    EXPECT_EQ(read(source, {5000, 100'000, 3}), "no error");
    expect_within("more than 14999 bytes in all", read(source, {5000, 14'999, 3}));
    expect_within("more than 4999 bytes", read(source, {4999, 100'000, 3}));
  }
  expect_within("more than 2 files", read(packed("y.tar", files), {5000, 100'000, 2}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              hkt::data::read_files(
                  packed("z.tar", files), [](auto&) { return false; }, [](auto&, auto&&) {}, {}, {1, 100'000, 3});
            }),
            "no error");
}

// How many have connected to a server that has answered none of them; asked in vain, it would wait.
int waiting_connections(int server) {
  EXPECT_EQ(::fcntl(server, F_SETFL, O_NONBLOCK), 0);
  int count = 0;
  for (int connection = 0; (connection = ::accept(server, nullptr, nullptr)) >= 0; ::close(connection)) ++count;
  return count;
}

// A server that takes the connection and then says nothing.
TEST_F(Archives, AStalledDownloadEnds) {
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(server, 8), 0);
  ::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  setenv("no_proxy", "127.0.0.1", 1);
  hkt::data::Download download;
  download.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/file";
  download.target = path("file");
  download.stall = std::chrono::seconds(1);
  download.attempts = 2;
  download.first_wait = std::chrono::milliseconds(1);
  expect_within("Operation too slow", message_of<std::runtime_error>([&] { hkt::data::download(download); }));
  EXPECT_EQ(waiting_connections(server), download.attempts);
  ::close(server);
}

TEST_F(Archives, OneDownloadAtATime) {
  hkt::data::Download download;
  download.url = "http://127.0.0.1:1/file";  // where nobody listens
  download.target = path("file");
  download.attempts = 1;
  setenv("no_proxy", "127.0.0.1", 1);
  expect_within("could not be downloaded", message_of<std::runtime_error>([&] { hkt::data::download(download); }));
  const int other = ::open(path("file.lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  expect_within("another process is downloading",
                message_of<std::runtime_error>([&] { hkt::data::download(download); }));
  ::close(other);
}

}  // namespace
