// SPDX-License-Identifier: Apache-2.0
// Shows what each head attends to at each level, as colours of the input's tokens and as heatmaps.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const style = getComputedStyle(document.documentElement);
const color = name => style.getPropertyValue(name).trim();

function element(tag, text, options = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  return made;
}

// Unpacks a square matrix, see quantised.h.
function matrix(packed) {
  const bytes = Uint8Array.from(atob(packed.bytes), c => c.charCodeAt(0));
  const step = (packed.high - packed.low) / 255;
  return Array.from({ length: packed.rows }, (_, i) =>
    Array.from(bytes.subarray(i * packed.rows, (i + 1) * packed.rows), b => packed.low + step * b));
}

const tokens = data.tokens, length = tokens.length;
const state = { block: 0, head: 0, token: Math.max(0, length - 1), pinned: false };
let head; // the selected head, unpacked

function unpackHead() {
  const packed = data.blocks[state.block].heads[state.head];
  head = { weights: packed.weights, attention: matrix(packed.attention), levels: packed.levels.map(matrix), shares: packed.shares };
  head.scores = Array.from({ length }, (_, i) => Array.from({ length }, (_, j) =>
    head.levels.reduce((sum, level, l) => sum + head.weights[l] * level[i >> l][j >> l], 0)));
}

// ---- the input as strips of tokens, one for attention and one for each level

const extra = element('style');
extra.textContent = `
.strips { display: grid; gap: 1rem; }
.strip { line-height: 1.9; overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .9rem; }
.strip span { padding: .1rem .05rem; border-radius: 3px; cursor: pointer; white-space: pre-wrap; }
.strip span.selected { outline: 2px solid var(--accent); }
.strip.image { display: grid; grid-template-columns: repeat(32, 1fr); width: min(100%, 20rem); line-height: 1; }
.strip.image span { aspect-ratio: 1; padding: 0; border-radius: 0; font-size: 0; }
.shares { width: auto; margin-bottom: .5rem; }
.shares td, .shares thead th { text-align: right; min-width: 5rem; white-space: nowrap; }
.shares tbody th { text-align: left; font-weight: normal; }
.strips { margin-top: 1rem; }
.choices { display: flex; gap: 1rem; flex-wrap: wrap; margin: 1rem 0; }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .2rem .5rem; }`;
document.head.append(extra);

function strip(title, parent) {
  const card = element('figure');
  const caption = element('figcaption');
  const line = element('div', undefined, { class: 'strip' + (data.image ? ' image' : ''), role: 'group', 'aria-label': title });
  const spans = tokens.map((text, i) => {
    const shown = text === '\\x0a' ? '↵\n' : text + (data.spaced ? ' ' : '');
    const made = element('span', data.image ? '' : shown, { title: 'token ' + i + ': ' + text });
    made.addEventListener('mouseenter', () => { if (!state.pinned) showToken(i); });
    made.addEventListener('click', () => { state.pinned = !state.pinned || state.token !== i; showToken(i); });
    return made;
  });
  line.append(...spans);
  card.append(element('h3', title), line, caption);
  parent.append(card);
  return { spans, caption };
}

function paint(view, values, sentence) {
  const low = Math.min(...values), high = Math.max(...values), range = high > low ? high - low : 1;
  view.spans.forEach((span, j) => {
    const share = (values[j] - low) / range;
    span.style.background = data.image
      ? `color-mix(in srgb, ${color('--bad')} ${Math.round(100 * share)}%, rgb(${tokens[j]},${tokens[j]},${tokens[j]}))`
      : `color-mix(in srgb, ${color('--accent')} ${Math.round(70 * share)}%, transparent)`;
    span.classList.toggle('selected', j === state.token);
  });
  view.caption.textContent = sentence;
}

function top(values) {
  return values.map((v, j) => [v, j]).sort((a, b) => b[0] - a[0]).slice(0, 3)
    .map(([v, j]) => '“' + tokens[j] + '” at ' + j + ' (' + v.toFixed(3) + ')').join(', ');
}

// ---- the levels that a token used: what each contributes to the choice among the keys it sees

const percent = share => (100 * share).toFixed(0) + ' %';

function meanShares(heads, token) {
  return head.weights.map((_, l) => heads.reduce((sum, h) => sum + h.shares[token][l], 0) / heads.length);
}

function showShares(token) {
  const heads = data.blocks[state.block].heads;
  const rows = [['this head', head.shares[token]], ['block ' + state.block + ', mean over heads', meanShares(heads, token)],
    ['all blocks, mean over heads', meanShares(data.blocks.flatMap(block => block.heads), token)]];
  used.body.replaceChildren(...rows.map(([name, shares]) => {
    const row = element('tr');
    row.append(element('th', name, { scope: 'row' }), ...shares.map(share => {
      const cell = element('td', percent(share));
      cell.style.background = `color-mix(in srgb, ${color('--accent')} ${Math.round(60 * Math.max(0, Math.min(1, share)))}%, transparent)`;
      return cell;
    }));
    return row;
  }));
  used.caption.textContent = 'Of what distinguishes the keys for token ' + token + ', “' + tokens[token] + '”: the covariance of a ' +
    'level’s weighted scores with the sum of all, over the variance of the sum. A negative share works against the others.';
}

function expectation(token) {
  if (!data.expected) return '';
  const expected = data.expected[token];
  return ' After it the model expects “' + expected.token + '” (' + expected.probability.toFixed(3) + ')' +
    (expected.actual === null ? '.' : '; “' + tokens[token + 1] + '” came (' + expected.actual.toFixed(3) + ').');
}

function showToken(token) {
  state.token = token;
  if (used) showShares(token);
  paint(attended, head.attention[token], 'Token ' + token + ', “' + tokens[token] + '”, attends most to ' + top(head.attention[token]) + '.' + expectation(token));
  scales.forEach((view, l) => {
    const row = head.levels[l][token >> l];
    paint(view, tokens.map((_, j) => row[j >> l]), 'Scores of position ' + (token >> l) + ' of level ' + l + ', which covers ' +
      (1 << l) + (l ? ' tokens' : ' token') + '; weight λ = ' + head.weights[l].toFixed(3) + '.');
  });
}

// ---- heatmaps, drawn after the page is laid out, because a plot takes the width of its container

let plots = [];

function heatmap(parent, title, caption, values, symmetric) {
  const plot = element('div', undefined, { class: 'plot', role: 'img', 'aria-label': title + '. ' + caption });
  const card = element('figure');
  card.append(element('h3', title), plot, element('figcaption', caption));
  parent.append(card);
  const scale = values.length === length ? 1 : Math.ceil(length / values.length);
  const labels = values.map((_, i) => i + ' ' + tokens.slice(i * scale, (i + 1) * scale).join(' '));
  plots.push(() => Plotly.newPlot(plot, [{ type: 'heatmap', z: values, zmid: symmetric ? 0 : undefined, colorscale: symmetric ? 'RdBu' : 'Blues', reversescale: !symmetric,
    hovertemplate: '%{customdata}<br>%{z:.3f}<extra></extra>', customdata: values.map((row, i) => row.map((_, j) => labels[i] + ' → ' + labels[j])) }], {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: { color: color('--ink'), size: 11 }, margin: { l: 40, r: 10, t: 5, b: 30 },
    yaxis: { autorange: 'reversed' },
  }, { responsive: true, displayModeBar: false }));
}

function drawMaps() {
  maps.replaceChildren();
  plots = [];
  const s = head.scores;
  const part = sign => s.map((row, i) => row.map((x, j) => (x + sign * s[j][i]) / 2));
  heatmap(maps, 'Attention', 'Rows are queries, columns keys.', head.attention, false);
  heatmap(maps, 'Scores, all levels', 'Before the softmax, weighted by λ.', s, true);
  heatmap(maps, 'Reciprocal part', 'Symmetric part of the scores: the same in both directions.', part(1), true);
  heatmap(maps, 'Directional part', 'Antisymmetric part of the scores: opposite in the two directions.', part(-1), true);
  head.levels.forEach((level, l) => heatmap(maps, 'Level ' + l, level.length + ' positions, λ = ' + head.weights[l].toFixed(3) + '.', level, true));
  plots.forEach(draw => draw());
}

// ---- the page

page.replaceChildren();
page.append(element('h1', data.title));
const predicted = data.probabilities.find(p => p.label === data.prediction);
page.append(element('p', (data.expected ? 'Most probable next token: ' : 'Prediction: ') + data.prediction + ' (' + (100 * predicted.probability).toFixed(1) + ' %)' +
  (data.label === null ? '.' : '; the label is ' + data.label + '.'), { class: 'answer' }));
const choices = element('div', undefined, { class: 'choices' });
for (const [name, count] of [['block', data.blocks.length], ['head', data.blocks[0].heads.length]]) {
  const label = element('label', name + ' ');
  const select = element('select', undefined, { 'aria-label': name });
  for (let i = 0; i < count; ++i) select.append(element('option', String(i), { value: i }));
  select.addEventListener('change', () => { state[name] = Number(select.value); unpackHead(); showToken(state.token); drawMaps(); });
  label.append(select);
  choices.append(label);
}
page.append(choices, element('p', 'Hover over a token to see where it attends at each level; click to pin it.', { class: 'soft' }));
unpackHead();
let used;
if (head.weights.length > 1) {
  const card = element('figure'), table = element('table', undefined, { class: 'shares' }), top = element('tr');
  used = { body: element('tbody'), caption: element('figcaption') };
  top.append(element('th', ''), ...head.weights.map((_, l) => element('th', 'level ' + l, { scope: 'col' })));
  const header = element('thead');
  header.append(top);
  table.append(header, used.body);
  const scroll = element('div', undefined, { class: 'scroll' });
  scroll.append(table);
  card.append(element('h3', 'Levels that the selected token uses'), scroll, used.caption);
  page.append(card);
}
const strips = element('div', undefined, { class: 'strips' });
page.append(strips);
const attended = strip('Attention of the selected token', strips);
const scales = head.levels.map((_, l) => strip('Level ' + l, strips));
page.append(element('h2', 'Heatmaps'));
const maps = element('div', undefined, { class: 'grid' });
page.append(maps);
showToken(state.token);
drawMaps();
document.documentElement.dataset.ready = 'yes';
