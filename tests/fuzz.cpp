// Readers under mutated input, 100,000 each: they give a result or the one kind of error they promise, and never read what
// is not theirs (the sanitizers watch in `make sanitize`). The same mutations every time; HKT_FUZZ_SEED gives others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "data/listops.h"
#include "data/packed.h"
#include "hkt/config.h"
#include "hkt/safetensors.h"

namespace {

constexpr int inputs = 100'000;

std::uint64_t seed() {
  const char* text = std::getenv("HKT_FUZZ_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// A file in memory, with a path.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(file_)) {}
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::filesystem::path& hold(const std::string& bytes) const {
    EXPECT_EQ(::ftruncate(file_, 0), 0);
    EXPECT_EQ(::pwrite(file_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  int file_;
  std::filesystem::path path_;
};

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> words) : generator_(seed()), words_(std::move(words)) {}

  std::string mutated(std::string text) {
    for (std::size_t i = 1 + below(4); i > 0; --i) mutate(text);
    return text;
  }
  std::size_t below(std::size_t limit) { return generator_() % limit; }

 private:
  void mutate(std::string& text) {
    if (text.empty()) text = "{";
    const auto place = below(text.size());
    const auto length = 1 + below(std::min<std::size_t>(16, text.size() - place));
    switch (below(7)) {
      case 0:
        text[place] = static_cast<char>(text[place] ^ (1 << below(8)));
        break;
      case 1:
        text[place] = static_cast<char>(below(256));
        break;
      case 2:
        text.resize(place);
        break;
      case 3:
        text.erase(place, length);
        break;
      case 4:
        text.insert(below(text.size()), text.substr(place, length));
        break;
      case 5:
        text.insert(place, words_[below(words_.size())]);
        break;
      default:
        text.replace(place, std::min(length, text.size() - place), words_[below(words_.size())]);
    }
  }

  std::mt19937_64 generator_;
  std::vector<std::string> words_;
};

const std::vector<std::string> json_words = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             "\"",
                                             ":",
                                             ",",
                                             "null",
                                             "true",
                                             "-1",
                                             "0",
                                             "1e99",
                                             "9223372036854775807",
                                             "18446744073709551615",
                                             "\\u0000",
                                             "\xff",
                                             "\"a\":1,",
                                             "[[[[",
                                             "0.5"};

// The bytes of a safetensors file with its length and checksum made right again, so that what is behind them is reached.
std::string made_good(std::string bytes) {
  constexpr std::size_t prefix = 8, digits = 8;
  if (bytes.size() < prefix) return bytes;
  // The header ends where its braces close for the last time before the numbers begin, if they still do.
  const auto end = bytes.rfind("}}");
  if (end != std::string::npos && end > prefix) {
    const std::uint64_t header = std::min(bytes.size(), (end + 2 + 7) / 8 * 8) - prefix;
    std::memcpy(bytes.data(), &header, prefix);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), prefix);
  const std::string label = "\"checksum\":\"crc32:";
  const auto place = bytes.find(label);
  if (length > bytes.size() - prefix || place == std::string::npos || place + label.size() + digits > bytes.size())
    return bytes;
  const auto sum_at = place + label.size();
  bytes.replace(sum_at, digits, "00000000");
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + prefix), bytes.size() - prefix);
  char text[digits + 1];
  std::snprintf(text, sizeof text, "%08lx", static_cast<unsigned long>(sum));
  return bytes.replace(sum_at, digits, text);
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string saved(const std::function<void(const std::filesystem::path&)>& save) {
  const auto path = std::filesystem::temp_directory_path() / ("hkt-fuzz-" + std::to_string(::getpid()));
  save(path);
  auto bytes = file_bytes(path);
  std::filesystem::remove(path);
  return bytes;
}

// Feeds mutations of `good` to `read`; counts those it took, and fails where it throws something else than Error.
template <typename Error>
int fuzz(const std::string& good, const std::vector<std::string>& words, bool repaired,
         const std::function<void(const std::string&)>& read) {
  Mutator mutator(words);
  int taken = 0;
  for (int i = 0; i < inputs; ++i) {
    auto input = mutator.mutated(good);
    if (repaired && mutator.below(4) > 0) input = made_good(input);
    try {
      read(input);
      ++taken;
    } catch (const Error& error) {
      EXPECT_STRNE(error.what(), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "input " << i << ": " << error.what();
    }
  }
  return taken;
}

TEST(Fuzz, Config) {
  const auto good = hkt::Config().to_json();
  const int taken = fuzz<std::invalid_argument>(good, json_words, false, [](const std::string& text) {
    const auto config = hkt::Config::from_json(text);
    EXPECT_EQ(hkt::Config::from_json(config.to_json()), config);
  });
  EXPECT_GT(taken, 0);
}

TEST(Fuzz, Safetensors) {
  const auto good = saved([](const auto& path) {
    hkt::save_safetensors(
        path, {{"a", at::arange(6, at::kFloat)}, {"b", at::ones({2, 3}, at::kLong)}, {"c", at::zeros({4}, at::kBool)}},
        {{"key", "value"}});
  });
  const MemoryFile file;
  const int taken = fuzz<std::runtime_error>(good, json_words, true, [&](const std::string& bytes) {
    for (const auto& [name, tensor] : hkt::load_safetensors(file.hold(bytes)).tensors) {
      if (tensor.numel() > 0) tensor.to(at::kDouble).sum();
    }
  });
  EXPECT_GT(taken, inputs / 100) << "hardly any input got past the checksum";
}

TEST(Fuzz, PackedData) {
  hkt::DataConfig config;
  config.train_samples = 6;
  config.validation_samples = config.test_samples = 2;
  const auto prepared = hkt::data::listops::generate(config);
  const auto good = saved([&](const auto& path) { hkt::data::save_packed(path, prepared, "{}", "fuzz"); });
  const MemoryFile file;
  const int taken = fuzz<std::runtime_error>(good, json_words, true, [&](const std::string& bytes) {
    const auto packed = hkt::data::load_packed(file.hold(bytes));
    for (const auto* part : {&packed.train, &packed.validation, &packed.test}) {
      for (std::int64_t i = 0; i < part->size(); ++i) {
        const auto begin = part->offsets[i].item<std::int64_t>(), end = part->offsets[i + 1].item<std::int64_t>();
        ASSERT_LE(0, begin);
        ASSERT_LE(begin, end);
        ASSERT_LE(end, part->tokens.numel());
        ASSERT_GE(part->labels[i].item<std::int64_t>(), 0);
        ASSERT_LT(part->labels[i].item<std::int64_t>(), static_cast<std::int64_t>(packed.labels.size()));
      }
    }
  });
  EXPECT_GT(taken, 0);
}

TEST(Fuzz, DeepNesting) {
  const std::string deep(200'000, '[');
  EXPECT_THROW(hkt::Config::from_json(R"({"format": 1, "model": {"levels": )" + deep), std::invalid_argument);
  EXPECT_THROW(
      hkt::Config::from_json(R"({"format": 1, "model": {"levels": )" + deep + std::string(200'000, ']') + "}}"),
      std::invalid_argument);
}

// No single flipped bit goes unnoticed.
TEST(Fuzz, EveryFlippedBitIsNoticed) {
  const auto good =
      saved([](const auto& path) { hkt::save_safetensors(path, {{"a", at::arange(6, at::kFloat)}}, {{"k", "v"}}); });
  const MemoryFile file;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    bool noticed = false;
    try {
      noticed = hkt::load_safetensors(file.hold(bytes)).checksum.empty();
    } catch (const std::runtime_error&) {
      noticed = true;
    }
    EXPECT_TRUE(noticed) << "bit " << bit;
  }
}

}  // namespace
