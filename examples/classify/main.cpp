// SPDX-License-Identifier: Apache-2.0
// Trains a small HKT classifier on a toy task: the class is the token after a marker somewhere in the sequence.
#include <hkt/config.h>
#include <hkt/modules.h>
#include <torch/torch.h>

#include <iostream>

namespace {

constexpr int64_t marker = 0, classes = 8, length = 48;

struct Batch {
  torch::Tensor tokens, labels;
};

Batch draw(int64_t size) {
  const auto labels = torch::randint(classes, {size});
  const auto place = torch::randint(length - 1, {size, 1});
  auto tokens = torch::randint(1, classes + 1, {size, length});
  tokens.scatter_(1, place, marker).scatter_(1, place + 1, labels.unsqueeze(1) + 1);
  return {tokens, labels};
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const auto config = hkt::Config::from_json(R"({
    "format": 1,
    "model": {"levels": 3, "heads": 2, "width": 64, "blocks": 2, "feedforward": 128,
              "dropout": 0, "classes": 8, "vocab": 9, "max_length": 48}
  })");
  hkt::Classifier model(config.model);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));

  for (int step = 1; step <= 200; ++step) {
    const auto [tokens, labels] = draw(64);
    const auto loss = torch::cross_entropy_loss(model->forward(tokens), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }

  model->eval();
  const torch::NoGradGuard no_grad;
  const auto [tokens, labels] = draw(1000);
  const auto accuracy = model->forward(tokens).argmax(1).eq(labels).to(torch::kFloat).mean().item<float>();
  std::cout << "accuracy " << accuracy << " (chance " << 1.0 / classes << ")\n";
  std::cout << "weights of the levels in the first block, one row per head:\n"
            << model->blocks[0]->as<hkt::Block>()->attention->weights() << '\n';
  return accuracy > 0.5 ? 0 : 1;
}
