// SPDX-License-Identifier: Apache-2.0
// The float64 copy of a model, and its forward pass block by block.
#include "theory/walk.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

namespace hkt::theory {

Transformer exact_copy(const TransformerImpl& model) {
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const auto random_state = generator.get_state();  // the copy's initialisation must not affect training
  auto copy = create_model(model.config());
  generator.set_state(random_state);
  const at::NoGradGuard no_grad;
  const auto from = model.named_parameters();
  copy->to(at::kDouble);
  for (auto& parameter : copy->named_parameters()) parameter.value().copy_(from[parameter.key()]);
  copy->eval();
  return copy;
}

HeadScores BlockView::head(HierarchicalAttentionImpl& attention, const ModelConfig& config, std::int64_t index) const {
  std::vector<at::Tensor> own_q, own_k;
  for (size_t level = 0; level < q.size(); ++level) {
    own_q.push_back(q[level][index]);
    own_k.push_back(k[level][index / (config.heads / config.key_head_count())]);
  }
  return head_scores(own_q, own_k, attention.weights()[index], config.mask == Mask::causal);
}

void walk(TransformerImpl& model, const at::Tensor& tokens, const View& view) {
  auto x = model.embedded(tokens.unsqueeze(0));
  std::int64_t index = 0;
  for (const auto& module : *model.blocks) {
    auto& block = *module->as<Block>();
    auto& attention = *block.attention;
    const auto normed = block.attention_norm(x);
    const auto levels = attention.hierarchy(attention.convolution ? attention.convolution(normed) : normed);
    const auto projected = attention.projected(levels);
    BlockView seen;
    seen.normed = normed[0];
    for (const auto& level : levels) seen.inputs.push_back(level[0]);
    for (const auto& level : projected.q) seen.q.push_back(level[0]);
    for (const auto& level : projected.k) seen.k.push_back(level[0]);
    view(index++, attention, seen);
    x = block.forward(x);
  }
}

at::Tensor logits_of(TransformerImpl& model, const at::Tensor& x) {
  if (auto* language = dynamic_cast<LanguageModelImpl*>(&model)) return language->logits(x)[0];
  auto& classifier = dynamic_cast<ClassifierImpl&>(model);
  const auto y = model.norm(x)[0];
  return classifier.head(model.config().pooling == Pooling::last ? y.select(0, y.size(0) - 1) : y.mean(0));
}

}  // namespace hkt::theory
