// SPDX-License-Identifier: Apache-2.0
// Decoding: every layer adds the rows of new tokens to its caches and attends to them.
#include "hkt/decoding.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <memory>

#include "decoding_plan.h"
#include "hkt/ops.h"
#include "nn/layer_norm.h"
#include "positions.h"
#ifdef HKT_WITH_CUDA
#include "nn/graphed_step_cuda.h"
#include "ops/decoding_rows_cuda.h"
#endif

namespace hkt {
namespace {

using decoding::Plan;
using decoding::Sizes;

// Whether keeping the scores of coarse levels (hkt::decode) reads fewer bytes a step, on average, than reading their keys
// (hkt::attention_extend). They are float32 and belong to query heads, keys to key heads.
bool should_keep_scores(const ModelConfig& model, std::size_t element_bytes) {
  const double key =
      static_cast<double>(model.key_head_count() * model.head_width()) * static_cast<double>(element_bytes);
  const double score = 4.0 * static_cast<double>(model.heads);
  double keys = 0, kept = 0,
         share = 1;  // share: of the positions that level l has, and of the steps in which it changes
  for (std::int64_t level = 1; level < model.levels; ++level) {
    share /= 2;
    keys += share * key;
    kept += share * share * (key + 2 * score);
  }
  return kept < keys;
}

// The caches of one layer.
struct LayerCache {
  std::vector<at::Tensor> k;       // by level [B, key heads, rows + 1, head width]
  at::Tensor v;                    // like k[0]
  std::vector<at::Tensor> coarse;  // for levels ≥ 1 [B, heads, rows]: kept scores; empty if they are not kept
  std::vector<at::Tensor> inputs;  // rings of the inputs of each filter, [B · places, channels]
  std::vector<at::Tensor> q;       // rings of queries of levels ≥ 1, [B · places, heads · head width]
  at::Tensor convolution_inputs;   // ring

  LayerCache(const Sizes& sizes, const at::TensorOptions& options, bool keeps_scores) {
    const auto& model = sizes.model;
    const auto heads = model.heads, key_heads = model.key_head_count(), width = model.head_width();
    const auto cache = [&](std::int64_t level) {
      return at::zeros({sizes.batch, key_heads, sizes.cache_rows(level) + 1, width}, options);
    };
    const auto ring = [&](std::int64_t level, std::int64_t channels) {
      return at::zeros({sizes.batch * sizes.ring_places(level), channels}, options);
    };
    const bool projected = model.filter_on == FilterOn::projected;
    const auto scores = options.dtype(options.dtype() == at::kDouble ? at::kDouble : at::kFloat);
    for (std::int64_t level = 0; level < model.levels; ++level) {
      k.push_back(cache(level));
      if (level + 1 < model.levels)
        inputs.push_back(ring(level, projected ? (heads + key_heads) * width : model.width));
      if (level > 0) q.push_back(ring(level, model.width));
      if (level > 0 && keeps_scores) coarse.push_back(at::zeros({sizes.batch, heads, sizes.cache_rows(level)}, scores));
    }
    v = cache(0);
    if (model.short_convolution != Convolution::none) convolution_inputs = ring(0, model.width);
  }
};

// The rows of a ring that a filter reads, [B, rows, taps · channels].
at::Tensor windows(const at::Tensor& ring, const at::Tensor& index, std::int64_t batch, std::int64_t rows) {
  return ring.index_select(0, index).view({batch, rows, -1});
}

// Σ_r window[r] · weight[r].
at::Tensor filtered(const at::Tensor& window, const at::Tensor& weight) {
  if (weight.dim() == 3) return at::matmul(window, weight.flatten(0, 1));
  return (window.unflatten(2, {weight.size(0), -1}) * weight).sum(2);
}

// Whether two kernels make all rows of a step (ops/decoding_rows_cuda.h).
bool fuses_rows(const ModelConfig& model, const Plan& plan) {
#ifdef HKT_WITH_CUDA
  return plan.ends.is_cuda() && plan.queries == 1 && (model.levels == 1 || model.filter != Filter::dense) &&
         model.projections == Projections::shared && model.psd == Psd::free && model.head_width() % 2 == 0;
#else
  static_cast<void>(model), static_cast<void>(plan);
  return false;
#endif
}

// One layer of one call. `rotations` are those of the new rows, or of all positions where the kernels choose.
class LayerCall {
 public:
  LayerCall(HierarchicalAttentionImpl& attention, LayerCache& cache, const Plan& plan, const at::Tensor& rotations,
            bool stale)
      : attention_(attention),
        model_(attention.config()),
        cache_(cache),
        plan_(plan),
        rotations_(rotations),
        stale_(stale) {}

  // x [B, n, width]
  at::Tensor run(const at::Tensor& x) {
    const auto mixed = attention_.convolution ? convolved(x) : x;
    const auto values = attention_.value(model_.convolution_on == ConvolutionOn::qkv ? mixed : x);
    if (fuses_rows(model_, plan_)) {
      add_rows_at_once(mixed, values);
    } else {
      rows_of(cache_.v).index_copy_(0, plan_.level[0].cache, values.view({-1, model_.head_width()}));
      add_queries_and_keys(mixed);
    }
    return attention_.output(attend().transpose(1, 2).flatten(2));
  }

 private:
  static at::Tensor rows_of(const at::Tensor& cache) { return cache.view({-1, cache.size(-1)}); }

  at::Tensor convolved(const at::Tensor& x) {
    const auto& weight = attention_.convolution->weight;
    cache_.convolution_inputs.index_copy_(0, plan_.level[0].ring, x.flatten(0, 1));
    const auto y = filtered(windows(cache_.convolution_inputs, plan_.convolution_window, x.size(0), x.size(1)), weight);
    return weight.dim() == 3 ? y : x + y;
  }

  // The new rows of all levels: inputs, or with filter_on "projected" queries and keys, [B, rows, channels].
  std::vector<at::Tensor> new_rows(const at::Tensor& x) {
    const bool projected = model_.filter_on == FilterOn::projected;
    std::vector<at::Tensor> rows = {projected ? at::linear(x, attention_.query_key_weight(0)) : x};
    for (std::int64_t level = 1; level < model_.levels; ++level) {
      const auto below = static_cast<std::size_t>(level) - 1;
      cache_.inputs[below].index_copy_(0, plan_.level[below].ring, rows[below].flatten(0, 1));
      if (level >= plan_.levels) break;
      const auto& own = plan_.level[static_cast<std::size_t>(level)];
      rows.push_back(
          filtered(windows(cache_.inputs[below], own.window, x.size(0), own.rows), attention_.filters[below]->weight));
    }
    return rows;
  }

  // Queries and keys, before positions, [B, all rows, channels].
  at::Tensor projected(const std::vector<at::Tensor>& rows) {
    if (model_.filter_on == FilterOn::projected) return at::cat(rows, 1);
    if (attention_.query_key.size() == 1) return at::linear(at::cat(rows, 1), attention_.query_key_weight(0));
    std::vector<at::Tensor> result;
    for (std::size_t l = 0; l < rows.size(); ++l)
      result.push_back(at::linear(rows[l], attention_.query_key_weight(static_cast<std::int64_t>(l))));
    return at::cat(result, 1);
  }

  void add_queries_and_keys(const at::Tensor& x) {
    const std::int64_t width = model_.head_width();
    auto rows = projected(new_rows(x)).unflatten(2, {-1, width});
    if (rotations_.defined()) rows = positions::rotated(rows.flatten(0, 1), rotations_).view_as(rows);
    std::int64_t begin = 0;
    for (std::int64_t level = 0; level < plan_.levels; ++level) {
      const auto l = static_cast<std::size_t>(level);
      const auto& own = plan_.level[l];
      const auto [q, k] = attention_.queries_and_keys(rows.narrow(1, begin, own.rows), level);
      begin += own.rows;
      rows_of(cache_.k[l]).index_copy_(0, own.cache, k.transpose(1, 2).reshape({-1, width}));
      if (level == 0) {
        queries_ = {q};
      } else {
        cache_.q[l - 1].index_copy_(0, own.ring, q.transpose(1, 2).reshape({-1, model_.width}));
      }
    }
    for (std::size_t l = 1; l < cache_.k.size(); ++l) {
      const auto kept = cache_.q[l - 1].index_select(0, plan_.level[l].queries);
      queries_.push_back(kept.view({x.size(0), plan_.level[l].query_rows, model_.heads, -1}).transpose(1, 2));
    }
  }

#ifdef HKT_WITH_CUDA
  void add_rows_at_once(const at::Tensor& x, const at::Tensor& values) {
    std::vector<at::Tensor> filters;
    for (const auto& filter : attention_.filters) filters.push_back(filter->weight);
    const auto all_levels = [&](const at::Tensor& finest) {
      if (filters.empty()) return finest;
      return ops::new_rows_cuda(finest.squeeze(1), plan_.ends, cache_.inputs, filters);
    };
    const auto projected = [&](const at::Tensor& rows) { return at::linear(rows, attention_.query_key_weight(0)); };
    const auto rows = model_.filter_on == FilterOn::projected ? all_levels(projected(x)) : projected(all_levels(x));
    queries_ =
        ops::place_rows_cuda(rows, values.squeeze(1), plan_.ends, rotations_, {cache_.k, cache_.v, cache_.q}).unbind();
  }
#else
  void add_rows_at_once(const at::Tensor& /*x*/, const at::Tensor& /*values*/) {}
#endif

  // [B, heads, n, head width]
  at::Tensor attend() {
    // Chunks of prompts: where all sequences are equally long, the host knows their lengths, and one pass takes as long as they are.
    constexpr std::int64_t least_chunk = 64;
    if (plan_.queries >= least_chunk && plan_.start >= 0) return attend_from_start();
    std::vector<at::Tensor> k;
    for (const auto& cache : cache_.k) k.push_back(cache.narrow(2, 0, cache.size(2) - 1));
    const auto v = cache_.v.narrow(2, 0, cache_.v.size(2) - 1);
    if (plan_.queries == 1 && !cache_.coarse.empty()) {
      return std::get<0>(hkt::decode(queries_, k, v, attention_.weights(), plan_.ends, cache_.coarse, {}, stale_));
    }
    return std::get<0>(hkt::attention_extend(queries_, k, v, attention_.weights(), plan_.ends));
  }

  at::Tensor attend_from_start() const {
    const auto end = plan_.start + plan_.queries;
    std::vector<at::Tensor> q, k;
    for (std::size_t l = 0; l < cache_.k.size(); ++l) {
      const auto rows = level_rows(end, static_cast<std::int64_t>(l));
      k.push_back(cache_.k[l].narrow(2, 0, rows));
      q.push_back(queries_[l].narrow(2, 0, rows - (plan_.start >> l)));
    }
    const auto v = cache_.v.narrow(2, 0, end);
    return std::get<0>(hkt::attention(q, k, v, attention_.weights(), /*causal=*/true, {}, {}, plan_.start));
  }

  HierarchicalAttentionImpl& attention_;
  const ModelConfig& model_;
  LayerCache& cache_;
  const Plan& plan_;
  const at::Tensor& rotations_;
  bool stale_;
  std::vector<at::Tensor> queries_;  // by level, as attention takes them
};

// A step on a GPU as a CUDA graph. What it launches does not depend on the positions, which it reads from the plan's indices.
#ifdef HKT_WITH_CUDA
struct StepGraph {
  at::Tensor tokens, logits;
  Plan plan;
  std::unique_ptr<GraphedStep> graph;
};
#else
struct StepGraph {};
#endif

}  // namespace

struct DecodingState::Impl {
  LanguageModel model;
  Sizes sizes;
  at::TensorOptions options;
  std::vector<LayerCache> layers;
  std::vector<std::int64_t> lengths, longest;  // longest: that the sequence has had
  positions::Table rotations;
  bool stale = true;         // kept scores are not those of the last token
  bool has_stepped = false;  // a step has been launched that a graph may repeat
  std::unique_ptr<StepGraph> graph;

  Impl(LanguageModel given, std::int64_t batch, std::int64_t capacity, std::int64_t take_back)
      : model(std::move(given)),
        sizes{batch, capacity, take_back, model->config()},
        options(model->embedding->weight.options().requires_grad(false)),
        lengths(static_cast<std::size_t>(batch)),
        longest(lengths) {
    TORCH_CHECK_VALUE(batch >= 1, "batch is ", batch, "; DecodingState needs at least 1.");
    TORCH_CHECK_VALUE(capacity >= 1 && capacity <= sizes.model.max_length, "capacity is ", capacity,
                      "; DecodingState takes 1 to the model's max_length, ", sizes.model.max_length, ".");
    TORCH_CHECK_VALUE(take_back >= 0, "take_back is ", take_back, "; it must be at least 0.");
    const bool keeps_scores = sizes.model.levels > 1 && should_keep_scores(sizes.model, options.dtype().itemsize());
    for (std::int64_t i = 0; i < sizes.model.blocks; ++i) layers.emplace_back(sizes, options, keeps_scores);
  }

  void check_tokens(const at::Tensor& tokens) const {
    TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.size(0) == sizes.batch && tokens.size(1) >= 1, "tokens has shape ",
                      tokens.sizes(), "; this state needs [", sizes.batch, ", at least 1].");
    TORCH_CHECK_VALUE(tokens.scalar_type() == at::kLong && tokens.device() == options.device(), "tokens is ",
                      tokens.scalar_type(), " on ", tokens.device(), "; it must be int64 on ", options.device(), ".");
    if (!tokens.is_cpu()) return;  // reading values would synchronise with a GPU
    const auto [low, high] = at::aminmax(tokens);
    const auto wrong = low.item<std::int64_t>() < 0 ? low.item<std::int64_t>() : high.item<std::int64_t>();
    TORCH_CHECK_VALUE(wrong >= 0 && wrong < sizes.model.vocab, "tokens contains ", wrong, "; the model takes 0 to ",
                      sizes.model.vocab - 1, " (vocab - 1).");
  }

  std::vector<std::int64_t> ends_after(const std::vector<std::int64_t>& counts) const {
    auto ends = lengths;
    for (std::size_t b = 0; b < ends.size(); ++b) ends[b] += counts[b];
    return ends;
  }

  // The output of the last block for tokens [B, n], whose rows go into the caches as planned.
  at::Tensor run(const at::Tensor& tokens, const Plan& plan) {
    at::Tensor factors;
    if (sizes.model.positions == Positions::rotary) {
      const auto type = c10::typeMetaToScalarType(options.dtype());
      const auto width = sizes.model.head_width();
      factors = fuses_rows(sizes.model, plan)
                    ? positions::all_rotations(rotations, sizes.capacity, width, type, options.device())
                    : positions::rotations(rotations, plan.row_positions, sizes.capacity, width, type);
    }
    auto x = model->embedded(tokens, plan.token_positions.view_as(tokens), sizes.capacity);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto& block = *model->blocks[i]->as<Block>();
      const auto normed = layer_norm(x, block.attention_norm, NormOutput::autocast);
      x = block.after_attention(x, LayerCall(*block.attention, layers[i], plan, factors, stale).run(normed));
    }
    return x;
  }

  void have_appended(const std::vector<std::int64_t>& ends, std::int64_t n) {
    stale = n > 1;
    lengths = ends;
    for (std::size_t b = 0; b < ends.size(); ++b) longest[b] = std::max(longest[b], ends[b]);
  }

  // Appends at most longest_call tokens; `counts` of each row are real, the last ones. Returns the output of the last block.
  at::Tensor append(const at::Tensor& tokens, const std::vector<std::int64_t>& counts) {
    const auto ends = ends_after(counts);
    auto x = run(tokens, decoding::make_plan(sizes, ends, tokens.size(1), options.device()));
    have_appended(ends, tokens.size(1));
    return x;
  }

  // Appends a token to every sequence, [B, 1]. Returns the logits, [B, 1, vocab].
  at::Tensor step(const at::Tensor& tokens) {
    const std::vector<std::int64_t> counts(lengths.size(), 1);
    check_tokens(tokens);
    check_room(counts);
    const auto ends = ends_after(counts);
    const auto plan = decoding::make_plan(sizes, ends, 1, options.device());
    // The first step after a prompt computes kept scores anew. The next one is launched, so that a graph captures no lazy
    // initialisation.
    const bool repeats = options.device().is_cuda() && !stale && !at::autocast::is_autocast_enabled(at::kCUDA);
    auto logits = repeats && has_stepped ? replayed(tokens, plan) : model->logits(run(tokens, plan));
    has_stepped = has_stepped || repeats;
    have_appended(ends, 1);
    return logits;
  }

#ifdef HKT_WITH_CUDA
  at::Tensor replayed(const at::Tensor& tokens, const Plan& plan) {
    if (!graph) {
      graph = std::make_unique<StepGraph>(at::empty_like(tokens), at::Tensor(), plan);
      const auto work = [this, &own = *graph] { own.logits = model->logits(run(own.tokens, own.plan)); };
      graph->graph = std::make_unique<GraphedStep>(work);
    }
    graph->tokens.copy_(tokens);
    graph->plan.indices.copy_(plan.indices);
    graph->graph->replay();
    return graph->logits.clone();
  }
#else
  at::Tensor replayed(const at::Tensor& tokens, const Plan& plan) { return model->logits(run(tokens, plan)); }
#endif

  void check_room(const std::vector<std::int64_t>& counts) const {
    for (std::size_t b = 0; b < counts.size(); ++b) {
      TORCH_CHECK_VALUE(lengths[b] + counts[b] <= sizes.capacity, "sequence ", b, " has ", lengths[b],
                        " tokens and gets ", counts[b], " more; the state has room for ", sizes.capacity, ".");
    }
  }

  // Appends pieces and passes the output of the last block for each to `take`.
  template <class Take>
  void append_all(const at::Tensor& tokens, const std::vector<std::int64_t>& counts, const Take& take) {
    check_tokens(tokens);
    check_room(counts);
    const std::int64_t n = tokens.size(1);
    for (std::int64_t begin = 0; begin < n; begin += decoding::longest_call) {
      const auto size = std::min(decoding::longest_call, n - begin);
      std::vector<std::int64_t> real;  // of this piece; padding comes first
      for (const auto count : counts) real.push_back(std::clamp<std::int64_t>(begin + size - (n - count), 0, size));
      take(append(tokens.narrow(1, begin, size), real));
    }
  }
};

DecodingState::DecodingState(LanguageModel model, std::int64_t batch, std::int64_t capacity, std::int64_t take_back)
    : impl_(std::make_unique<Impl>(std::move(model), batch, capacity, take_back)) {}
DecodingState::~DecodingState() = default;
DecodingState::DecodingState(DecodingState&&) noexcept = default;
DecodingState& DecodingState::operator=(DecodingState&&) noexcept = default;

at::Tensor DecodingState::extend(const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> logits;
  const std::vector<std::int64_t> counts(impl_->lengths.size(), tokens.dim() == 2 ? tokens.size(1) : 0);
  impl_->append_all(tokens, counts, [&](const at::Tensor& x) { logits.push_back(impl_->model->logits(x)); });
  return at::cat(logits, 1);
}

at::Tensor DecodingState::prefill(const at::Tensor& tokens, const std::vector<std::int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  auto counts = lengths;
  if (counts.empty()) counts.assign(impl_->lengths.size(), tokens.dim() == 2 ? tokens.size(1) : 0);
  TORCH_CHECK_VALUE(counts.size() == impl_->lengths.size(), "lengths has ", counts.size(), " numbers; it needs ",
                    impl_->lengths.size(), ", one per sequence.");
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    TORCH_CHECK_VALUE(lengths[b] >= 0 && tokens.dim() == 2 && lengths[b] <= tokens.size(1), "lengths contains ",
                      lengths[b], "; it must be from 0 to the length of tokens.");
    TORCH_CHECK_VALUE(impl_->lengths[b] == 0, "sequence ", b, " has ", impl_->lengths[b],
                      " tokens; a padded prompt needs an empty state.");
  }
  at::Tensor last;
  impl_->append_all(tokens, counts, [&](const at::Tensor& x) { last = x.narrow(1, x.size(1) - 1, 1); });
  return impl_->model->logits(last).squeeze(1);
}

at::Tensor DecodingState::step(const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(tokens.dim() == 1, "tokens has shape ", tokens.sizes(), "; a step needs [", impl_->lengths.size(),
                    "].");
  const at::NoGradGuard no_grad;
  return impl_->step(tokens.unsqueeze(1)).squeeze(1);
}

void DecodingState::truncate(const std::vector<std::int64_t>& lengths) {
  auto& own = *impl_;
  TORCH_CHECK_VALUE(lengths.size() == own.lengths.size(), "lengths has ", lengths.size(), " numbers; it needs ",
                    own.lengths.size(), ", one per sequence.");
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    TORCH_CHECK_VALUE(lengths[b] >= 0 && lengths[b] <= own.lengths[b], "lengths contains ", lengths[b], "; sequence ",
                      b, " has ", own.lengths[b], " tokens.");
    TORCH_CHECK_VALUE(lengths[b] >= own.longest[b] - own.sizes.take_back, "sequence ", b, " cannot be truncated to ",
                      lengths[b], ": it has had ", own.longest[b], " tokens, and this state takes back at most ",
                      own.sizes.take_back, ".");
  }
  own.lengths = lengths;
  own.stale = true;
}

void DecodingState::clear() {
  std::fill(impl_->lengths.begin(), impl_->lengths.end(), 0);
  std::fill(impl_->longest.begin(), impl_->longest.end(), 0);
  impl_->stale = true;
}

const std::vector<std::int64_t>& DecodingState::lengths() const { return impl_->lengths; }
std::int64_t DecodingState::capacity() const { return impl_->sizes.capacity; }

}  // namespace hkt
