// SPDX-License-Identifier: Apache-2.0
// The float64 copy of a model, and its forward pass block by block.
#include "theory/walk.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

namespace hkt::theory {

Classifier exact_copy(const Classifier& model, const ModelConfig& config) {
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const auto random_state = generator.get_state();  // the copy's initialisation must not affect training
  Classifier copy(config);
  generator.set_state(random_state);
  const at::NoGradGuard no_grad;
  const auto from = model->named_parameters();
  copy->to(at::kDouble);
  for (auto& parameter : copy->named_parameters()) parameter.value().copy_(from[parameter.key()]);
  copy->eval();
  return copy;
}

HeadScores BlockView::head(HierarchicalAttentionImpl& attention, const ModelConfig& config, std::int64_t index) const {
  std::vector<at::Tensor> own_q, own_k;
  for (size_t level = 0; level < q.size(); ++level) {
    own_q.push_back(q[level][index]);
    own_k.push_back(k[level][index]);
  }
  return head_scores(own_q, own_k, attention.weights()[index], config.mask == Mask::causal);
}

void walk(Classifier& model, const at::Tensor& tokens, const View& view) {
  auto x = model->embedded(tokens.unsqueeze(0));
  std::int64_t index = 0;
  for (const auto& module : *model->blocks) {
    auto& block = *module->as<Block>();
    const auto levels = block.attention->hierarchy(block.attention_norm(x));
    const auto projected = block.attention->projected(levels);
    BlockView seen;
    for (size_t level = 0; level < levels.size(); ++level) {
      seen.inputs.push_back(levels[level][0]);
      seen.q.push_back(projected.q[level][0]);
      seen.k.push_back(projected.k[level][0]);
    }
    view(index++, *block.attention, seen);
    x = block.forward(x);
  }
}

}  // namespace hkt::theory
