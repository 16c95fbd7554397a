// SPDX-License-Identifier: Apache-2.0
// hkt::Predictor as a program from outside uses it: the order of answers, bad texts, threads, exported models.
#include "hkt/predictor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "hkt/modules.h"
#include "hkt/safetensors.h"

namespace {

namespace fs = std::filesystem;

constexpr int64_t max_length = 600;

// A folder with an untrained classifier of three classes, whose positions are computed when they are needed.
class Folder {
 public:
  explicit Folder(const std::string& model = R"("positions": "rotary")")
      : path_(fs::temp_directory_path() / ("hkt-predictor-" + std::to_string(std::random_device()()))) {
    fs::create_directories(path_);
    config_ = hkt::Config::from_json(R"({"format": 1, "model": {"width": 32, "heads": 2, "blocks": 2, "feedforward": 32,
      "classes": 3, "max_length": 600, )" +
                                     model + R"(}, "data": {"task": "text"}})");
    const auto network = hkt::create_model(config_.model);
    const at::NoGradGuard no_grad;
    for (auto& parameter : network->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
    const bool language = config_.model.kind == hkt::ModelKind::language;
    hkt::save(*network, path_ / "model.safetensors",
              {{"config", config_.to_json()}, {"labels", language ? "[]" : R"(["a", "b", "c"])"}, {"data", ""}});
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  const hkt::Config& config() const { return config_; }

 private:
  fs::path path_;
  hkt::Config config_;
};

std::vector<std::string> texts(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> result(count);
  for (auto& text : result) {
    for (auto length = 1 + random() % 300; text.size() < length;) text += static_cast<char>('a' + random() % 26);
  }
  return result;
}

void expect_close(const hkt::Prediction& answer, const std::vector<double>& wanted) {
  constexpr double tolerance = 1e-4;
  ASSERT_EQ(answer.probabilities.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(answer.probabilities[i], wanted[i], tolerance);
}

// By the module itself, one text at a time.
std::vector<double> plain_answer(hkt::TransformerImpl& model, const std::string& text) {
  const at::NoGradGuard no_grad;
  const auto count = std::min<int64_t>(std::ssize(text), max_length);
  const auto tokens = at::empty({1, count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) tokens[0][i] = static_cast<uint8_t>(text[static_cast<std::size_t>(i)]);
  const auto row = at::softmax(model.forward(tokens).to(at::kDouble), 1).contiguous();
  return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
}

TEST(Predictor, AnswersEachTextAsTheModelDoesAloneInTheirOrder) {
  const Folder folder;
  const hkt::Predictor predictor(folder.path());
  const auto model = hkt::create_model(folder.config().model);
  hkt::load(*model, folder.path() / "model.safetensors");
  model->eval();
  const auto given = texts(150, 1);  // several batches
  const auto answers = predictor.predict(given);
  ASSERT_EQ(answers.size(), given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    expect_close(answers[i], plain_answer(*model, given[i]));
    EXPECT_EQ(answers[i].probability, *std::ranges::max_element(answers[i].probabilities));
    const auto best = std::ranges::find(predictor.labels(), answers[i].label) - predictor.labels().begin();
    EXPECT_EQ(answers[i].probability, answers[i].probabilities.at(static_cast<std::size_t>(best)));
    EXPECT_FALSE(answers[i].cut);
  }
  EXPECT_TRUE(predictor.predict({}).empty());
}

TEST(Predictor, SaysWhyATextHasNoLabelAndAnswersTheOthers) {
  const Folder folder;
  const hkt::Predictor predictor(folder.path());
  const auto answers = predictor.predict({"good", "", std::string("a\0b", 3), std::string(1000, 'x'), "fine"});
  for (const std::size_t i : {1, 2}) {
    EXPECT_TRUE(answers[i].label.empty() && answers[i].probabilities.empty());
    EXPECT_FALSE(answers[i].error.empty());
  }
  EXPECT_NE(answers[1].error.find("empty"), std::string::npos);
  EXPECT_NE(answers[2].error.find("byte 0"), std::string::npos);
  EXPECT_TRUE(answers[3].cut && answers[3].error.empty());
  expect_close(answers[3], predictor.predict({std::string(max_length, 'x')})[0].probabilities);
  EXPECT_FALSE(answers[0].label.empty() || answers[4].label.empty() || answers[0].cut);
}

TEST(Predictor, RefusesATokenThatTheModelDoesNotHave) {
  const Folder folder(R"("vocab": 100)");
  const auto answers = hkt::Predictor(folder.path()).predict({"xyz", "ABC"});
  EXPECT_NE(answers[0].error.find("1 to 99"), std::string::npos) << answers[0].error;
  EXPECT_TRUE(answers[1].error.empty());
}

TEST(Predictor, IsSharedByThreads) {
  for (const char* positions : {R"("positions": "rotary")", R"("positions": "sinusoidal")"}) {
    const Folder folder(positions);
    const hkt::Predictor alone(folder.path()), shared(folder.path());
    constexpr unsigned threads = 8;
    std::vector<std::vector<hkt::Prediction>> found(threads);
    std::barrier together(threads);  // the first calls meet while the positions are computed
    std::vector<std::thread> callers;
    for (unsigned i = 0; i < threads; ++i) {
      callers.emplace_back([&, i] {
        together.arrive_and_wait();
        found[i] = shared.predict(texts(40, i));
      });
    }
    for (auto& caller : callers) caller.join();
    for (unsigned i = 0; i < threads; ++i) {
      const auto wanted = alone.predict(texts(40, i));
      for (std::size_t j = 0; j < wanted.size(); ++j) expect_close(found[i].at(j), wanted[j].probabilities);
    }
  }
}

TEST(Predictor, ReadsAnExportedModelInBfloat16) {
  const hkt::Predictor predictor(fs::path(HKT_MODELS) / "imdb-hkt");
  EXPECT_EQ(predictor.labels(), (std::vector<std::string>{"neg", "pos"}));
  EXPECT_EQ(predictor.config().data.task, hkt::Task::imdb);
  const auto answer = predictor.predict({"I enjoyed every minute of it."})[0];
  EXPECT_NEAR(answer.probabilities[0] + answer.probabilities[1], 1, 1e-12);
}

void expect_refused(const fs::path& folder, const std::string& word) {
  try {
    const hkt::Predictor predictor(folder);
    FAIL() << folder;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(Predictor, RefusesFoldersWithoutAClassifierOfTexts) {
  expect_refused("nowhere", "not a folder");
  expect_refused(fs::temp_directory_path(), "contains no model");
  expect_refused(fs::path(HKT_MODELS) / "enwik8-hkt", "language model");
}

}  // namespace
