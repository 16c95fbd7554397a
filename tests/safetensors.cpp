// SPDX-License-Identifier: Apache-2.0
// Safetensors files: there and back, a reader that no bytes can break, and a writer that leaves whole files only.
#include "hkt/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "errors.h"
#include "hkt/config.h"
#include "hkt/modules.h"

namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name = "file.safetensors") const { return folder_ / name; }

  void write(const std::string& bytes) const {
    fs::remove(path());  // to cut and refill a file makes some file systems wait for the disk
    std::ofstream(path(), std::ios::binary) << bytes;
  }
  // A file with this header and as many bytes of data.
  void write(const std::string& header, std::size_t data) const {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    write(bytes + header + std::string(data, '\0'));
  }
  std::string bytes() const {
    std::ifstream stream(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::string error() const {
    return message_of<std::runtime_error>([&] { hkt::load_safetensors(path()); });
  }
  void expect_error(const std::string& expected) const {
    const auto message = error();
    expect_within(expected, message);
    expect_within(path().string(), message);
  }
  std::size_t files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("hkt-safetensors-" + std::to_string(::getpid()));
};

hkt::NamedTensors all_dtypes() {
  torch::manual_seed(1);
  return {{"bytes", at::arange(7).to(at::kByte)},
          {"flags", at::tensor({1, 0, 1}).to(at::kBool)},
          {"float64", at::randn({2, 3}, at::kDouble)},
          {"float32", at::randn({3, 1, 2})},
          {"bfloat16", at::randn({5}).to(at::kBFloat16)},
          {"float16", at::randn({5}).to(at::kHalf)},
          {"int64", at::tensor({INT64_MIN, int64_t{0}, INT64_MAX}, at::kLong)},
          {"int32", at::tensor({-1, 2}, at::kInt)},
          {"scalar", at::tensor(3.5)},
          {"empty", at::empty({0})},
          {"wide and empty", at::empty({4, 0, 3}, at::kLong)},
          {"strided", at::randn({4, 3}).t()},
          {"näme \"with\" quotes", at::zeros({1})}};
}

TEST_F(Safetensors, EveryDtypeThereAndBack) {
  const auto saved = all_dtypes();
  const hkt::Metadata metadata = {{"config", "{\"format\": 1}"}, {"übung", "\n"}};
  hkt::save_safetensors(path(), saved, metadata);
  const auto file = hkt::load_safetensors(path());
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(), [&](auto& t) { return t.first == name; });
    ASSERT_NE(found, file.tensors.end()) << name;
    EXPECT_EQ(found->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(found->second.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(found->second, tensor)) << name;
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(Safetensors, NoTensorsAtAll) {
  hkt::save_safetensors(path(), {});
  EXPECT_TRUE(hkt::load_safetensors(path()).tensors.empty());
}

TEST_F(Safetensors, DataIsAligned) {
  hkt::save_safetensors(path(), {{"a", at::zeros({1}, at::kByte)}, {"b", at::ones({1}, at::kDouble)}});
  const auto content = bytes();
  std::uint64_t header = 0;
  std::memcpy(&header, content.data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
  const auto file = hkt::load_safetensors(path());
  EXPECT_EQ(file.tensors[0].first, "b") << "the wider element comes first";
}

TEST_F(Safetensors, WhatCannotBeSavedIsNamed) {
  const auto message = [&](const hkt::NamedTensors& tensors) {
    return message_of<std::invalid_argument>([&] { hkt::save_safetensors(path(), tensors); });
  };
  expect_within("tensor \"z\" has dtype ComplexFloat", message({{"z", at::zeros({1}, at::kComplexFloat)}}));
  expect_within("\"z\" is used twice", message({{"z", at::zeros({1})}, {"z", at::zeros({1})}}));
  expect_within("__metadata__", message({{"__metadata__", at::zeros({1})}}));
  expect_within("UTF-8", message({{"\xff", at::zeros({1})}}));
  EXPECT_EQ(files(), 0u);
}

TEST_F(Safetensors, AFileCutAnywhereIsRefused) {
  hkt::save_safetensors(path(), {{"a", at::ones({2})}, {"b", at::ones({3}, at::kByte)}}, {{"k", "v"}});
  const auto whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    SCOPED_TRACE("cut to " + std::to_string(size) + " of " + std::to_string(whole.size()) + " bytes");
    expect_within(path().string(), error());
  }
  write(whole + "x");
  expect_within(path().string(), error());
}

TEST_F(Safetensors, MutationsNeverCrash) {
  hkt::save_safetensors(path(),
                        {{"a", at::ones({2, 2})}, {"b", at::tensor({1, 0}).to(at::kBool)}, {"c", at::empty({0, 4})}},
                        {{"k", "v"}});
  const auto whole = bytes();
  std::mt19937 generator(20260726);
  const auto pick = [&](std::size_t below) { return generator() % below; };
  const std::string alphabet = "0123456789[]{},:\"- eE.";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = whole;
    for (auto changes = 1 + pick(4); changes > 0; --changes) {
      const auto place = pick(changed.size());
      switch (pick(5)) {
        case 0:
          changed[place] = static_cast<char>(changed[place] ^ (1 << pick(8)));
          break;
        case 1:
          changed[place] = alphabet[pick(alphabet.size())];
          break;
        case 2:
          changed.erase(place, 1 + pick(3));
          break;
        case 3:
          changed.insert(place, 1, alphabet[pick(alphabet.size())]);
          break;
        default:
          changed[pick(8)] = static_cast<char>(pick(256));
      }
      if (changed.size() < 8) changed = whole;
    }
    write(changed);
    try {
      const auto file = hkt::load_safetensors(path());
      EXPECT_TRUE(file.checksum.empty() || changed == whole) << "change " << i << " has the checksum " << file.checksum;
      ++accepted;
    } catch (const std::runtime_error& error) {
      expect_within(path().string(), error.what());
    }
  }
  EXPECT_LT(accepted, 200);  // those that spoil the word "checksum" and no more, or undo themselves
}

TEST_F(Safetensors, HeadersThatLieAreRefused) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  struct Lie {
    std::string header;
    std::size_t data;
    std::string expected;
  };
  const std::vector<Lie> lies = {
      {"", 0, "does not begin with {"},
      {"[]", 0, "does not begin with {"},
      {"{", 0, "is not JSON"},
      {"{} x", 0, "is not JSON"},
      {"{}", 1, "take 0 bytes, but the file has 1"},
      {R"({"a":1})", 0, "does not have exactly dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[]}})", 0, "does not have exactly"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "does not have exactly"},
      {R"({"__metadata__":1})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"a":1}})", 0, "other than strings"},
      {tensor("\"F31\"", "[1]", "[0,4]"), 4, "has a dtype other than"},
      {tensor("32", "[1]", "[0,4]"), 4, "has a dtype other than"},
      {tensor("\"F32\"", "1", "[0,4]"), 4, "does not have a list as shape"},
      {tensor("\"F32\"", "[1]", "[0,4,4]"), 4, "two numbers as data_offsets"},
      {tensor("\"F32\"", "[-1]", "[0,4]"), 4, "not an integer from 0"},
      {tensor("\"F32\"", "[1.0]", "[0,4]"), 4, "not an integer from 0"},
      {tensor("\"F32\"", "[1]", "[0,\"4\"]"), 4, "not an integer from 0"},
      {tensor("\"F32\"", "[1]", "[4,0]"), 4, "do not match its shape"},
      {tensor("\"F32\"", "[2]", "[0,4]"), 4, "do not match its shape"},
      {tensor("\"F32\"", "[1]", "[0,8]"), 8, "do not match its shape"},
      {tensor("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "do not match its shape"},
      {tensor("\"F32\"", "[9223372036854775808]", "[0,0]"), 0, "not an integer from 0"},
      {tensor("\"F32\"", "[1]", "[4,8]"), 8, "does not begin where the previous tensor ends"},
      {tensor("\"F32\"", "[1]", "[0,4]"), 8, "take 4 bytes, but the file has 8"},
      {tensor("\"F32\"", "[1]", "[0,4]"), 3, "take 4 bytes, but the file has 3"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "does not begin where"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "the key \"a\" twice"},
  };
  for (const auto& [header, data, expected] : lies) {
    write(header, data);
    expect_error(expected);
  }
  write(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  expect_error("its header would have 9223372036854775807 bytes");
  write(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 0);
  std::ofstream(path(), std::ios::app) << '\2';
  expect_error("bytes other than 0 and 1");
}

TEST_F(Safetensors, WhatIsNoFileIsRefused) {
  expect_error("cannot be read");
  fs::create_directory(path());
  expect_error("cannot be read");
  EXPECT_THROW(hkt::save_safetensors(path(), {}), std::runtime_error);
  EXPECT_THROW(hkt::save_safetensors(path("no/such/folder"), {}), std::runtime_error);
}

// A disk that is full, played by a limit on the size of files: the old file stays and nothing is left behind.
TEST_F(Safetensors, AWriterThatFailsLeavesTheOldFile) {
  hkt::save_safetensors(path(), {{"old", at::ones({4})}});
  const auto before = bytes();
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit small{4096, usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(hkt::save_safetensors(path(), {{"new", at::ones({100000})}}), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(files(), 1u);
}

struct Pair : torch::nn::Module {
  explicit Pair(int64_t width) {
    first = register_module("first", torch::nn::Linear(width, 2));
    second = register_module("second", torch::nn::Linear(2, 1));
  }
  torch::nn::Linear first = nullptr, second = nullptr;
};

TEST_F(Safetensors, ModulesThereAndBack) {
  Pair saved(3), loaded(3);
  hkt::save(saved, path(), {{"step", "7"}});
  EXPECT_EQ(hkt::load(loaded, path()), (hkt::Metadata{{"step", "7"}}));
  for (const auto& parameter : saved.named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), loaded.named_parameters()[parameter.key()])) << parameter.key();
  }
}

// hkt export writes bfloat16.
TEST_F(Safetensors, ModulesTakeFloatingPointNumbersOfAnyType) {
  Pair module(3), other(3);
  for (const auto type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    hkt::NamedTensors tensors;
    for (const auto& parameter : module.named_parameters())
      tensors.emplace_back(parameter.key(), parameter.value().detach().to(type));
    hkt::save_safetensors(path(), tensors);
    hkt::load(other, path());
    EXPECT_EQ(other.first->weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(other.first->weight, module.first->weight.to(type).to(at::kFloat)));
  }
}

TEST_F(Safetensors, TheShippedModelsLoad) {
  for (const std::string name : {"imdb-hkt", "imdb-standard"}) {
    const auto file = std::filesystem::path(HKT_MODELS) / name / "model.safetensors";
    const auto config = hkt::Config::from_json(hkt::load_safetensors(file).metadata.at("config"));
    hkt::Classifier model(config.model);
    EXPECT_EQ(hkt::load(*model, file).count("labels"), 1U);
    model->eval();
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(model->forward(at::full({1, 100}, 'x', at::kLong)).isfinite().all().item<bool>());
  }
}

TEST_F(Safetensors, ModulesRefuseWhatDoesNotFitAndStayAsTheyWere) {
  Pair module(3);
  const auto before = module.first->weight.clone();
  const auto message = [&](const hkt::NamedTensors& tensors) {
    hkt::save_safetensors(path(), tensors);
    return message_of<std::runtime_error>([&] { hkt::load(module, path()); });
  };
  const hkt::NamedTensors good = {{"first.weight", at::ones({2, 3})},
                                  {"first.bias", at::ones({2})},
                                  {"second.weight", at::ones({1, 2})},
                                  {"second.bias", at::ones({1})}};
  auto missing = good, extra = good, shape = good, dtype = good;
  missing.pop_back();
  extra.emplace_back("third", at::ones({1}));
  shape.back().second = at::ones({2});
  dtype.back().second = at::ones({1}, at::kLong);
  expect_within("lacks the tensor \"second.bias\"", message(missing));
  expect_within("has the tensor \"third\", which the module does not have", message(extra));
  expect_within("has \"second.bias\" as [2] Float; the module needs [1] Float", message(shape));
  expect_within("has \"second.bias\" as [1] Long; the module needs [1] Float", message(dtype));
  EXPECT_TRUE(at::equal(module.first->weight, before));
  EXPECT_EQ(message(good), "no error");
}

}  // namespace
