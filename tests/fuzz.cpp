// SPDX-License-Identifier: Apache-2.0
// Every target of tests/fuzz on the corpus and on mutations of it: readers give a result or the one kind of error they
// promise, commands an exit code, and none reads what is not its own (the sanitizers watch in `make sanitize`). The same
// mutations every time; HKT_FUZZ_SEED gives others, and `make fuzz` looks for inputs that reach further.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "files/regular_file.h"
#include "hkt/config.h"
#include "hkt/safetensors.h"
#include "scratch.h"
#include "targets.h"

namespace {

namespace fs = std::filesystem;

std::uint64_t seed() {
  const char* text = std::getenv("HKT_FUZZ_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

class Mutator {
 public:
  std::string mutated(std::string text) {
    for (std::size_t i = 1 + below(4); i > 0; --i) mutate(text);
    return text;
  }
  std::size_t below(std::size_t limit) { return generator_() % limit; }

 private:
  void mutate(std::string& text) {
    if (text.empty()) text.assign(1, '{');
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
        text.insert(place, words[below(words.size())]);
        break;
      default:
        text.replace(place, std::min(length, text.size() - place), words[below(words.size())]);
    }
  }

  inline static const std::vector<std::string> words = {"{",
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
                                                        "\t",
                                                        "1e99",
                                                        "\n",
                                                        "0.5",
                                                        "\\u0000",
                                                        "\xff",
                                                        "../",
                                                        "[[[[",
                                                        "[MAX",
                                                        "\"a\":1,",
                                                        "9223372036854775807",
                                                        "18446744073709551615"};
  std::mt19937_64 generator_{seed()};
};

std::vector<std::string> corpus_of(const fuzz::Target& target) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(HKT_FUZZ_FOLDER) / "corpus" / target.name))
    paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const auto& path : paths) inputs.push_back(hkt::read_file(path));
  return inputs;
}

class Fuzz : public testing::TestWithParam<fuzz::Target> {};

TEST_P(Fuzz, TheCorpus) {
  const auto inputs = corpus_of(GetParam());
  ASSERT_FALSE(inputs.empty());
  for (const auto& input : inputs) EXPECT_NO_THROW(GetParam().run(input));
}

TEST_P(Fuzz, MutationsOfTheCorpus) {
  const auto& target = GetParam();
  const auto inputs = corpus_of(target);
  ASSERT_FALSE(inputs.empty());
  const auto readers = fuzz::reader_targets();
  const bool reader = std::any_of(readers.begin(), readers.end(), [&](const auto& r) { return r.run == target.run; });
  Mutator mutator;
  for (int i = 0; i < (reader ? 20'000 : 200); ++i) {
    auto input = mutator.mutated(inputs[mutator.below(inputs.size())]);
    if (target.repaired != nullptr && mutator.below(4) > 0) input = target.repaired(input);
    EXPECT_NO_THROW(target.run(input)) << "mutation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(fuzz::targets()),
                         [](const auto& info) { return std::string(info.param.name); });

std::string saved(const std::function<void(const fs::path&)>& save) {
  const auto path = fs::temp_directory_path() / ("hkt-fuzz-file-" + std::to_string(::getpid()));
  save(path);
  auto bytes = hkt::read_file(path);
  fs::remove(path);
  return bytes;
}

// Otherwise mutations would be refused for their checksum alone.
TEST(Repair, ManyMutationsAreReadAgain) {
  const auto good = saved([](const auto& path) {
    hkt::save_safetensors(path, {{"a", at::arange(6, at::kFloat)}, {"b", at::ones({2, 3}, at::kLong)}},
                          {{"key", "value"}});
  });
  const fuzz::MemoryFile file;
  Mutator mutator;
  constexpr int inputs = 2000;
  int refused = 0;
  for (int i = 0; i < inputs; ++i) {
    try {
      hkt::load_safetensors(file.hold(fuzz::repaired_safetensors(mutator.mutated(good))));
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  EXPECT_LT(refused, inputs - inputs / 100);
}

TEST(Nesting, DeepOnesAreRefused) {
  const std::string deep(200'000, '[');
  EXPECT_THROW(hkt::Config::from_json(R"({"format": 1, "model": {"levels": )" + deep), std::invalid_argument);
  EXPECT_THROW(
      hkt::Config::from_json(R"({"format": 1, "model": {"levels": )" + deep + std::string(200'000, ']') + "}}"),
      std::invalid_argument);
}

TEST(Checksum, EveryFlippedBitIsNoticed) {
  const auto good =
      saved([](const auto& path) { hkt::save_safetensors(path, {{"a", at::arange(6, at::kFloat)}}, {{"k", "v"}}); });
  const fuzz::MemoryFile file;
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
