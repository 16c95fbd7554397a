// SPDX-License-Identifier: Apache-2.0
// Attention over cached keys: a decoding step by the bytes that it must read, and a prompt in chunks. On the CPU and on a GPU.
#include <ATen/ATen.h>

#include <algorithm>

#include "attention_forms.h"
#include "graph.h"
#include "harness.h"

namespace hkt::bench {
namespace {

// The caches of one layer, and the query of one token.
struct Caches {
  std::vector<at::Tensor> q, k, coarse;
  at::Tensor v, weights;

  Caches(const Shape& s, const at::TensorOptions& options) {
    const int64_t key_heads = s.heads / s.group;
    for (int64_t level = 0; level < s.levels; ++level) {
      q.push_back(at::randn({s.batch, s.heads, 1, s.width}, options));
      k.push_back(at::randn({s.batch, key_heads, level_rows(s.length, level), s.width}, options));
      if (level > 0)
        coarse.push_back(at::zeros({s.batch, s.heads, level_rows(s.length, level)}, options.dtype(at::kFloat)));
    }
    v = at::randn({s.batch, key_heads, s.length, s.width}, options);
    weights = at::softmax(at::randn({s.heads, s.levels}, options.dtype(at::kFloat)), 1);
  }
};

// Bytes that decoding position t must read. Without kept scores: keys of all levels. With them: those of the levels that change,
// and the scores of the first that does not.
double bytes_of_step(const Shape& s, int64_t element_bytes, int64_t t, bool keeps_scores) {
  const int64_t key_heads = s.heads / s.group;
  int64_t levels = s.levels;
  if (keeps_scores)
    for (levels = 1; levels < s.levels && t % (int64_t{1} << levels) == 0;) ++levels;
  int64_t rows = s.length;
  for (int64_t level = 0; level < levels; ++level) rows += level_rows(s.length, level);
  const int64_t kept = levels < s.levels ? s.heads * level_rows(s.length, levels) * 4 : 0;
  return static_cast<double>(s.batch * (key_heads * rows * s.width * element_bytes + kept));
}

// Several layers' caches, so many that the next step finds none of its own in a cache of the machine, and the steps of one
// period, 2^(L − 1).
class Layers {
 public:
  Layers(const Shape& s, const at::TensorOptions& options, int64_t total_bytes) : shape_(s) {
    const double bytes = bytes_of_step(s, options.dtype().itemsize(), 0, false);
    const auto count = static_cast<int64_t>(static_cast<double>(total_bytes) / bytes) + 1;
    for (int64_t i = 0; i < count; ++i) layers_.emplace_back(s, options);
    for (int64_t step = 0; step < period(); ++step)
      ends_.push_back(at::full({s.batch}, s.length - period() + 1 + step, options.dtype(at::kLong)));
  }
  int64_t period() const { return int64_t{1} << (shape_.levels - 1); }
  int64_t calls() const { return period() * static_cast<int64_t>(layers_.size()); }

  void extend() const {
    for (const auto& ends : ends_)
      for (const Caches& c : layers_) hkt::attention_extend(c.q, c.k, c.v, c.weights, ends);
  }
  void decode() const {
    for (const auto& ends : ends_)
      for (const Caches& c : layers_) hkt::decode(c.q, c.k, c.v, c.weights, ends, c.coarse);
  }
  void standard() const {
    for (size_t step = 0; step < ends_.size(); ++step)
      for (const Caches& c : layers_)
        at::scaled_dot_product_attention(c.q[0], c.k[0], c.v, {}, 0, false, {}, shape_.group > 1);
  }
  double mean_bytes(int64_t element_bytes, bool keeps_scores) const {
    double sum = 0;
    for (int64_t step = 0; step < period(); ++step)
      sum += bytes_of_step(shape_, element_bytes, shape_.length - period() + step, keeps_scores);
    return sum / static_cast<double>(period());
  }

 private:
  Shape shape_;
  std::vector<Caches> layers_;
  std::vector<at::Tensor> ends_;
};

struct Setting {
  at::TensorOptions options;
  int64_t rotated_bytes;  // of all caches together
  int64_t copied_bytes;   // of the copy that measures the bandwidth
  int rounds;
};

// One shape, one and `levels` levels side by side.
void add_decode_rows(Table& table, const Shape& shape, const std::vector<int64_t>& levels, const Setting& setting) {
  const at::NoGradGuard no_grad;
  const int64_t element_bytes = setting.options.dtype().itemsize();
  const auto source = at::randn({setting.copied_bytes / 4}, setting.options.dtype(at::kFloat));
  const auto target = at::empty_like(source);
  std::vector<std::unique_ptr<Layers>> layers;
  std::vector<Candidate> candidates = {{"copy", [&] { target.copy_(source); }}};
  const auto name = [](const std::string& what, int64_t count) { return what + std::to_string(count); };
  for (const int64_t count : levels) {
    Shape s = shape;
    s.levels = count;
    layers.push_back(std::make_unique<Layers>(s, setting.options, setting.rotated_bytes));
    const Layers& l = *layers.back();
    candidates.push_back({name("extend", count), replayable([&l] { l.extend(); }, setting.options.device())});
    if (count > 1)
      candidates.push_back({name("decode", count), replayable([&l] { l.decode(); }, setting.options.device())});
    else
      candidates.push_back({"standard", replayable([&l] { l.standard(); }, setting.options.device())});
  }
  const Timings t(candidates, setting.rounds, [&] { wait_for(setting.options.device()); });
  const double copy_rate = 2 * static_cast<double>(setting.copied_bytes) / t.seconds("copy");
  const auto per_call = [&](const std::string& candidate, const Layers& l) {
    return t.seconds(candidate) / static_cast<double>(l.calls());
  };
  const double one = per_call("extend1", *layers[0]), standard = per_call("standard", *layers[0]);
  const std::string type = setting.options.dtype() == at::kFloat ? "float32" : "bf16";
  const auto add = [&](int64_t count, const std::string& what, double seconds, double bytes) {
    table.add({text(shape), type, std::to_string(shape.group), std::to_string(count), what, number(seconds * 1e6, 1),
               number(bytes / seconds / 1e9, 0), number(copy_rate / 1e9, 0), number(seconds * copy_rate / bytes, 3),
               number(seconds / one, 3), number(seconds / standard, 3)});
  };
  for (size_t i = 0; i < levels.size(); ++i) {
    const Layers& l = *layers[i];
    add(levels[i], "attention_extend", per_call(name("extend", levels[i]), l), l.mean_bytes(element_bytes, false));
    if (levels[i] > 1)
      add(levels[i], "decode", per_call(name("decode", levels[i]), l), l.mean_bytes(element_bytes, true));
    else
      add(1, "SDPA", standard, l.mean_bytes(element_bytes, false));
  }
}

Table decode_table(const std::string& where) {
  return Table("A decoding step, " + where + ": time over what a copy would take for the bytes that it must read",
               {"B, H, T, D", "type", "group", "L", "operator", "µs", "GB/s", "copy GB/s", "to copy rate", "to L = 1",
                "to SDPA"});
}

// One sequence against `parts` sequences of an equal share of its length: the same bytes. With few sequences only the split over
// keys fills the machine.
void add_long_rows(Table& table, Shape shape, int64_t parts, const Setting& setting) {
  const at::NoGradGuard no_grad;
  const Shape several{shape.batch * parts, shape.heads, shape.length / parts, shape.width, shape.levels, shape.group};
  const Layers one(shape, setting.options, setting.rotated_bytes),
      many(several, setting.options, setting.rotated_bytes);
  const auto device = setting.options.device();
  const Timings t({{"one extend", replayable([&] { one.extend(); }, device)},
                   {"many extend", replayable([&] { many.extend(); }, device)},
                   {"one decode", replayable([&] { one.decode(); }, device)},
                   {"many decode", replayable([&] { many.decode(); }, device)}},
                  setting.rounds, [&] { wait_for(device); });
  for (const std::string what : {"extend", "decode"}) {
    if (what == "decode" && shape.levels == 1) continue;  // keeps no scores: the same
    const double calls = static_cast<double>(one.calls()), other_calls = static_cast<double>(many.calls());
    table.add({text(shape), text(several), std::to_string(shape.levels),
               what == "extend" ? "attention_extend" : "decode", number(t.seconds("one " + what) / calls * 1e6, 1),
               number(t.ratio("one " + what, "many " + what) * other_calls / calls, 3)});
  }
}

// A prompt in chunks, by attention_extend on the caches and by hkt::attention with `start`, over one pass.
void add_prefill_row(Table& table, const Shape& s, int64_t chunk, const Setting& setting) {
  const at::NoGradGuard no_grad;
  const Inputs in(s, setting.options.dtype().toScalarType(), setting.options.device());
  struct Chunk {
    std::vector<at::Tensor> q, k;
    at::Tensor v, ends;
    int64_t start;
  };
  std::vector<Chunk> chunks;
  for (int64_t start = 0; start < s.length; start += chunk) {
    Chunk c{{},
            {},
            in.v.narrow(2, 0, start + chunk),
            at::full({s.batch}, start + chunk, setting.options.dtype(at::kLong)),
            start};
    for (int64_t level = 0; level < s.levels; ++level) {
      const int64_t first = start >> level, end = level_rows(start + chunk, level);
      c.q.push_back(in.q[level].narrow(2, first, end - first));
      c.k.push_back(in.k[level].narrow(2, 0, end));
    }
    chunks.push_back(c);
  }
  const auto device = setting.options.device();
  const Timings t({{"whole", replayable([&] { ours(in, true); }, device)},
                   {"extend", replayable(
                                  [&] {
                                    for (const Chunk& c : chunks)
                                      hkt::attention_extend(c.q, in.k, in.v, in.weights, c.ends);
                                  },
                                  device)},
                   {"start", replayable(
                                 [&] {
                                   for (const Chunk& c : chunks)
                                     hkt::attention(c.q, c.k, c.v, in.weights, true, {}, {}, c.start);
                                 },
                                 device)}},
                  setting.rounds, [&] { wait_for(device); });
  table.add({text(s), std::to_string(s.levels), std::to_string(chunk), number(t.seconds("whole") * 1e3, 3),
             number(t.ratio("extend", "whole"), 3), number(t.ratio("start", "whole"), 3)});
}

Table prefill_table(const std::string& where) {
  return Table("A prompt in chunks, " + where + ": time over one pass",
               {"B, H, T, D", "L", "chunk", "one pass ms", "attention_extend", "attention with start"});
}

}  // namespace

Table decode_steps(bool quick) {
  Table table = decode_table("CPU");
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t length : {4096, 32768}) {
      if (quick && length > 4096) continue;
      add_decode_rows(table, {1, 8, length, 64}, {1, 3, 5},
                      {at::TensorOptions(type), 256 << 20, 256 << 20, quick ? 3 : 9});
    }
  return table;
}

Table prefill_chunks(bool quick) {
  Table table = prefill_table("CPU, float32");
  for (const int64_t levels : {1, 3, 5})
    add_prefill_row(table, {1, 8, quick ? 2048 : 8192, 64, levels}, 512,
                    {at::TensorOptions(at::kFloat), 0, 0, quick ? 2 : 3});
  return table;
}

Table cuda_decode_steps(bool quick) {
  Table table = decode_table("CUDA");
  const Setting setting{at::TensorOptions(at::kBFloat16).device(at::kCUDA), 768 << 20, 512 << 20, quick ? 5 : 11};
  std::vector<Shape> shapes = {{16, 8, 4096, 64},  {16, 8, 8192, 64},  {64, 8, 4096, 64}, {16, 16, 4096, 128},
                               {16, 8, 8192, 128}, {1, 8, 131072, 64}, {1, 8, 4096, 64}};
  if (quick) shapes.resize(2);
  for (const auto& s : shapes) add_decode_rows(table, s, {1, 3, 5}, setting);
  add_decode_rows(table, {16, 16, 8192, 128, 3, 4}, {1, 3, 5}, setting);
  return table;
}

Table cuda_long_decode_steps(bool quick) {
  Table table("A decoding step of one long sequence, CUDA, bf16: time over that of several short ones",
              {"B, H, T, D", "short ones", "L", "operator", "µs", "to short ones"});
  const Setting setting{at::TensorOptions(at::kBFloat16).device(at::kCUDA), 768 << 20, 0, quick ? 5 : 11};
  for (const int64_t levels : {1, 3}) add_long_rows(table, {1, 8, 131072, 64, levels}, 16, setting);
  return table;
}

Table cuda_prefill_chunks(bool quick) {
  Table table = prefill_table("CUDA, bf16");
  const Setting setting{at::TensorOptions(at::kBFloat16).device(at::kCUDA), 0, 0, quick ? 5 : 11};
  for (const int64_t width : {64, 128})
    for (const int64_t levels : {1, 3, 5}) add_prefill_row(table, {8, 8, 8192, width, levels}, 512, setting);
  return table;
}

}  // namespace hkt::bench
