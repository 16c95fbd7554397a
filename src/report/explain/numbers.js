// SPDX-License-Identifier: Apache-2.0
// The data of the page, and what is computed from it: scores of queries and keys level by level, attention, shares of levels.
//
// {title, input: texts, expressions or images; label; tokens; texts: of an expression's tokens; units: positions that were left out
// together, unit_size words in each; models: [{name, kind, causal, levels, heads, key_heads, head_width, taps, convolution_taps,
// blocks: [{weights [heads, levels], q, k: of each level [heads or key heads, positions, head width]}],
// log_by_unit [units, answers], and of a classifier  classes, answers, log [answers], log_by_level [levels, answers],
// of a language model  next: {count, tokens [T, count], log [T, count], log_by_level [levels, T, count], came [T − 1],
// came_by_level [levels, T − 1]}}], where}. Tokens are bytes and numbers float32, both as base64; log stands for natural logarithms
// of probabilities.

const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const floatsOf = text => new Float32Array(bytesOf(text).buffer);

const tokens = bytesOf(data.tokens), length = tokens.length;
const isImage = data.input === 'images' && length === 1024;
const models = data.models.map(unpacked);

function unpacked(model) {
  const numbers = object => Object.fromEntries(Object.entries(object).map(([name, value]) =>
    [name, name.startsWith('log') || name.startsWith('came') ? floatsOf(value) : value]));
  const made = numbers(model);
  if (model.next) {
    made.next = numbers(model.next);
    made.next.tokens = bytesOf(model.next.tokens);
  }
  made.blocks = model.blocks.map(block => ({ weights: floatsOf(block.weights), q: block.q.map(floatsOf), k: block.k.map(floatsOf) }));
  made.selected = { block: 0, head: 0 };
  return made;
}

const positionsOf = level => Math.ceil(length / (1 << level));

// The weights of a head's levels, and its queries and keys as [positions, head width].
function headOf(model, block, head) {
  const own = model.blocks[block], { levels, head_width: width } = model;
  const keyHead = Math.floor(head / (model.heads / model.key_heads));
  const part = (rows, level, index) => rows.subarray(index * positionsOf(level) * width, (index + 1) * positionsOf(level) * width);
  return { width, causal: model.causal, weights: own.weights.subarray(head * levels, (head + 1) * levels),
    q: own.q.map((rows, level) => part(rows, level, head)), k: own.k.map((rows, level) => part(rows, level, keyHead)) };
}

const selectedHead = model => headOf(model, model.selected.block, model.selected.head);

// How many keys a token sees: they are the first ones.
const visibleTo = (head, token) => head.causal ? token + 1 : length;

// The weighted scores λ s(l) of one position of a level with its first `keys` positions.
function levelRow(head, level, position, keys) {
  const { width } = head, q = head.q[level], k = head.k[level], from = position * width;
  const factor = head.weights[level] / Math.sqrt(width), row = new Float64Array(keys);
  for (let n = 0, at = 0; n < keys; ++n) {
    let sum = 0;
    for (let d = 0; d < width; ++d, ++at) sum += q[from + d] * k[at];
    row[n] = factor * sum;
  }
  return row;
}

// Of one token: its weighted scores at each level, by position of that level, their sum by token, and its attention.
function rowOf(head, token) {
  const seen = visibleTo(head, token), levels = [], scores = new Float64Array(seen), attention = new Float64Array(length);
  for (let level = 0; level < head.q.length; ++level) {
    const row = levelRow(head, level, token >> level, ((seen - 1) >> level) + 1);
    for (let j = 0; j < seen; ++j) scores[j] += row[j >> level];
    levels.push(row);
  }
  let highest = -Infinity, sum = 0;
  for (const score of scores) highest = Math.max(highest, score);
  for (let j = 0; j < seen; ++j) sum += attention[j] = Math.exp(scores[j] - highest);
  for (let j = 0; j < seen; ++j) attention[j] /= sum;
  return { seen, levels, scores, attention };
}

// What each level adds to the score of each key, less its mean over the keys, which softmax ignores.
function contributions(row) {
  return row.levels.map((scores, level) => {
    let mean = 0;
    for (let j = 0; j < row.seen; ++j) mean += scores[j >> level] / row.seen;
    return Float64Array.from({ length: row.seen }, (_, j) => scores[j >> level] - mean);
  });
}

// What each level contributes to the choice among the keys: its covariance with the sum over the variance of the sum.
function sharesOf(row) {
  const parts = contributions(row), totals = parts.map(() => 0);
  let variance = 0;
  for (let j = 0; j < row.seen; ++j) {
    let sum = 0;
    for (const part of parts) sum += part[j];
    variance += sum * sum;
    parts.forEach((part, level) => { totals[level] += part[j] * sum; });
  }
  return totals.map(total => variance > 0 ? total / variance : 0);
}

// The tokens that a position of a level saw through the filters, and those that it stands for; both ends are included.
function windowOf(model, level, position) {
  const first = position << level, reach = (model.taps - 1) * ((1 << level) - 1) + model.convolution_taps - 1;
  return { saw: [Math.max(0, first - reach), first], stands: [first, Math.min(length, first + (1 << level)) - 1] };
}

const bits = natural => natural / Math.LN2;
const logOdds = log => log - Math.log(-Math.expm1(Math.min(log, -1e-12)));
