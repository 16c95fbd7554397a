// SPDX-License-Identifier: Apache-2.0
// Attention and scores as pictures: of all heads, small, and of the selected head.

const mostPixels = 512;

// Of a long input every n-th token is drawn.
function sampled(count, most) {
  const step = Math.ceil(count / most);
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step);
}

function draw(canvas, rows, columns, colourOf) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows);
  for (let i = 0, at = 0; i < rows; ++i) {
    for (let j = 0; j < columns; ++j, at += 4) {
      image.data.set(colourOf(i, j), at);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

// ---- all heads

const mostSmall = 96;

// The largest attention in each cell, over all keys of some queries, and the mean distance to what they attend to.
function smallMap(head) {
  const queries = sampled(length, mostSmall), step = Math.ceil(length / mostSmall), size = queries.length, cells = new Float64Array(size * size);
  let distance = 0;
  queries.forEach((token, i) => {
    const { attention } = rowOf(head, token);
    for (let j = 0; j < length; ++j) {
      const cell = i * size + Math.floor(j / step);
      cells[cell] = Math.max(cells[cell], attention[j]);
      distance += attention[j] * Math.abs(token - j) / size;
    }
  });
  return { size, cells, distance };
}

class Multiples {
  constructor(model, parent, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    this.buttons = [];
    const figure = element('figure');
    const blocks = element('div', undefined, { class: 'blocks' });
    figure.append(subHeading('All heads'), attentionLegend(true), blocks);
    model.blocks.forEach((_, block) => {
      const grid = element('div', undefined, { class: 'multiples', role: 'group', 'aria-label': `Heads of block ${block}` });
      for (let head = 0; head < model.heads; ++head) grid.append(this.button(block, head));
      const part = element('div');
      part.append(element('p', `Block ${block}`, { class: 'note' }), grid);
      blocks.append(part);
    });
    figure.append(element('figcaption', `Queries downwards, keys to the right; the number is the mean distance, in ${tokenName}s, to what a query attends to. Choose a head to see it below.`));
    parent.append(figure);
  }

  button(block, head) {
    const made = element('button', undefined, { type: 'button' }), canvas = element('canvas', undefined, { role: 'img' }), text = element('span');
    made.append(canvas, text);
    made.addEventListener('click', () => this.onSelect(block, head));
    this.buttons.push({ block, head, made, canvas, text });
    return made;
  }

  draw() {
    const colours = palette();
    for (const { block, head, made, canvas, text } of this.buttons) {
      const { size, cells, distance } = this.maps?.[`${block} ${head}`] ?? smallMap(headOf(this.model, block, head));
      (this.maps ??= {})[`${block} ${head}`] = { size, cells, distance };
      draw(canvas, size, size, (i, j) => this.model.causal && j > i ? colours.outside : colours.sequential(logarithmic(cells[i * size + j])));
      text.replaceChildren(element('span', `head ${head}`), element('span', short(distance)));
      const what = `Attention of block ${block}, head ${head}: mean distance ${short(distance)} ${tokenName}s`;
      canvas.setAttribute('aria-label', what);
      made.setAttribute('aria-label', what);
    }
    this.mark();
  }

  mark() {
    const { block, head } = this.model.selected;
    for (const button of this.buttons) button.made.setAttribute('aria-pressed', String(button.block === block && button.head === head));
  }
}

// ---- the selected head

// Rows without their mean over the keys that are seen, which softmax ignores.
function centred(values, count, seen) {
  return values.map((row, i) => {
    const n = seen(i);
    let mean = 0;
    for (let j = 0; j < n; ++j) mean += row[j] / n;
    return Float64Array.from({ length: count }, (_, j) => j < n ? row[j] - mean : NaN);
  });
}

function levelMap(head, level) {
  const places = sampled(positionsOf(level), mostPixels), all = positionsOf(level);
  const seen = position => head.causal ? position + 1 : all;
  const rows = centred(places.map(position => levelRow(head, level, position, seen(position))), all, i => seen(places[i]));
  return { places, values: rows.map(row => places.map(j => row[j])) };
}

function scoreMaps(head) {
  const places = sampled(length, mostPixels), rows = places.map(token => rowOf(head, token));
  const total = centred(rows.map(row => row.scores), length, i => rows[i].seen);
  return { places, attention: rows.map(row => places.map(j => row.attention[j])), total: total.map(row => places.map(j => row[j])),
    raw: rows.map(row => places.map(j => row.scores[j])) };
}

// All but one in two hundred are within it, so that a few do not make all others pale.
function limitOf(maps) {
  const sizes = Float64Array.from(maps.flatMap(map => map.flatMap(row => Array.from(row).filter(Number.isFinite).map(Math.abs)))).sort();
  return Math.max(1e-9, sizes[Math.floor(.995 * (sizes.length - 1))] ?? 0);
}

class Maps {
  constructor(model, parent) {
    this.model = model;
    this.title = subHeading('', 'block');
    this.grid = element('div', undefined, { class: 'maps' });
    parent.append(this.title, this.grid);
  }

  add(title, caption, { places, values, level = 0 }, legend, colourOf) {
    const figure = element('figure'), canvas = element('canvas', undefined, { role: 'img', 'aria-label': `${title}: ${caption}` }), note = element('figcaption', caption);
    const size = places.length;
    draw(canvas, size, size, (i, j) => colourOf(values[i][j]));
    const name = position => level === 0 ? nameOf(position) : `“${textOf(range(position << level, Math.min(length, (position + 1) << level)))}”`;
    canvas.addEventListener('mousemove', event => {
      const box = canvas.getBoundingClientRect(), at = (value, whole) => Math.max(0, Math.min(size - 1, Math.floor(size * value / whole)));
      const i = at(event.clientY - box.top, box.height), j = at(event.clientX - box.left, box.width);
      note.textContent = Number.isFinite(values[i][j]) ? `${places[i]} ${name(places[i])} → ${places[j]} ${name(places[j])}: ${minus(String(Number(values[i][j].toPrecision(6))))}` : 'The mask hides this key.';
    });
    canvas.addEventListener('mouseleave', () => { note.textContent = caption; });
    figure.append(subHeading(title), legend, canvas, note);
    this.grid.append(figure);
  }

  draw() {
    const { model } = this, head = selectedHead(model), colours = palette(), { places, attention, total, raw } = scoreMaps(head);
    const step = places[1] - places[0], some = step > 1 ? ` One ${tokenName} in ${step} is drawn.` : '';
    this.title.textContent = `Block ${model.selected.block}, head ${model.selected.head}`;
    this.grid.replaceChildren();
    const hidden = value => Number.isFinite(value) ? null : colours.outside;
    this.add('Attention', 'Queries downwards, keys to the right.' + some, { places, values: attention.map((row, i) => row.map((x, j) => model.causal && j > i ? NaN : x)) },
      attentionLegend(true), x => hidden(x) ?? colours.sequential(logarithmic(x)));
    const levels = Array.from({ length: model.levels }, (_, level) => levelMap(head, level));
    const limit = limitOf([total, ...levels.map(map => map.values)]);
    const signedMap = (title, caption, map, most) => this.add(title, caption, map, signedLegend(most, '', true), x => hidden(x) ?? colours.diverging(x / most));
    if (model.levels > 1) {
      signedMap('Scores, all levels', 'The sum, each row without its mean, which softmax ignores.' + some, { places, values: total }, limit);
    }
    levels.forEach((map, level) => signedMap(model.levels > 1 ? `Level ${level}` : 'Scores', `${positionsOf(level)} positions of ${counted(1 << level, tokenName)}, λ = ${head.weights[level].toFixed(3)}; ` +
      'λ times the scores, each row without its mean.', { ...map, level }, limit));
    if (model.causal) return;
    const part = sign => raw.map((row, i) => row.map((x, j) => (x + sign * raw[j][i]) / 2)), both = [part(1), part(-1)], most = limitOf(both);
    signedMap('Reciprocal part', 'The symmetric part of the scores: the same in both directions.' + some, { places, values: both[0] }, most);
    signedMap('Directional part', 'The antisymmetric part: opposite in the two directions.' + some, { places, values: both[1] }, most);
  }
}

const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
