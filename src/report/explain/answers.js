// SPDX-License-Identifier: Apache-2.0
// The answers of a model, what they would be without each level, and which level each byte of a text was predicted by.

const bitsOfWholeColour = 3; // the whole colour stands for odds that a level makes eight times as large

// The answers at a token: [{name, log, byLevel}].
function answersAt(model, token) {
  if (!model.next) {
    return model.answers.map((name, i) => ({ name, log: model.log[i],
      byLevel: Array.from({ length: model.levels }, (_, level) => model.log_by_level[level * model.answers.length + i]) }));
  }
  const { count, tokens: bytes, log, log_by_level: flat } = model.next;
  return Array.from({ length: count }, (_, i) => token * count + i).map(at => ({ name: nextName(token, bytes[at]), byte: bytes[at], log: log[at],
    byLevel: Array.from({ length: model.levels }, (_, level) => flat[level * length * count + at]) }));
}

// The answer at a token that came true, of a language model: null after the last one.
function cameAfter(model, token) {
  if (token + 1 >= length) return null;
  return { name: nextName(token, tokens[token + 1]), byte: tokens[token + 1], log: model.next.came[token],
    byLevel: Array.from({ length: model.levels }, (_, level) => model.next.came_by_level[level * (length - 1) + token]) };
}

function levelCell(log, without) {
  const cell = element('td', probability(without)), gain = bits(logOdds(log) - logOdds(without));
  cell.style.background = cssOf(behindText(gain / bitsOfWholeColour));
  cell.title = `the level changes its log-odds by ${minus((gain >= 0 ? '+' : '') + gain.toFixed(2))} bits`;
  return cell;
}

function answerRow(model, { name, log, byLevel }, isTrue) {
  const row = element('tr'), head = element('th', undefined, { scope: 'row' }), bar = element('span', undefined, { class: 'bar' });
  head.append(element('span', name, { class: 'long', title: name }), isTrue ? ' ✓' : '');
  bar.style.setProperty('--part', (100 * Math.exp(log)).toFixed(2) + '%');
  const shown = element('td', undefined, { class: 'shown' });
  shown.append(bar);
  row.append(head, shown, element('td', probability(log)), ...(model.levels > 1 ? byLevel.map(without => levelCell(log, without)) : []));
  return row;
}

// The columns of a table that has one for each level, under a common title.
function headWithLevels(model, names, over) {
  const head = element('thead'), first = element('tr'), second = element('tr'), several = model.levels > 1;
  for (const name of names) first.append(element('th', name, { scope: 'col', rowspan: several ? 2 : 1, class: name ? '' : 'shown' }));
  if (several) {
    first.append(element('th', over, { scope: 'colgroup', colspan: model.levels, class: 'over' }));
    for (let level = 0; level < model.levels; ++level) second.append(element('th', String(level), { scope: 'col', 'aria-label': `${over} ${level}` }));
  }
  head.append(first, ...(several ? [second] : []));
  return head;
}

class Answers {
  constructor(model, parent) {
    this.model = model;
    this.body = element('tbody');
    this.caption = element('figcaption');
    const figure = element('figure'), scroll = element('div', undefined, { class: 'scroll' }), table = element('table', undefined, { class: model.levels > 1 ? 'levels' : '' });
    this.title = subHeading(model.next ? '' : 'Classes');
    table.append(headWithLevels(model, [model.next ? 'next byte' : 'class', '', 'probability'], 'without level'), this.body);
    scroll.append(table);
    figure.append(this.title, scroll, this.caption);
    parent.append(figure);
    this.show(selection.token);
    if (model.next) selection.listeners.push(token => this.show(token));
  }

  show(token) {
    const { model } = this, answers = answersAt(model, token), came = model.next ? cameAfter(model, token) : null;
    if (came && !answers.some(answer => answer.byte === came.byte)) answers.push(came);
    this.body.replaceChildren(...answers.map(answer => answerRow(model, answer, model.next ? came?.byte === answer.byte : answer.name === data.label)));
    if (model.next) this.title.textContent = `After byte ${token}, ${nameOf(token)}` + (token === length - 1 ? ': what comes next' : '');
    const sum = answers.reduce((total, { log }) => total + Math.exp(log), 0);
    const rest = model.next || model.answers.length < model.classes ? ` The others have ${(100 * Math.max(0, 1 - sum)).toFixed(1)} % together.` : '';
    const tick = model.next ? (came ? ' ✓: the byte that came.' : '') : data.label === null ? '' : ' ✓: the label.';
    const without = model.levels > 1 ? ' Without a level: with its scores at zero in all heads, so that it tells no keys apart. Blue where the ' +
      'level makes the answer more probable, red where less.' : '';
    this.caption.textContent = (tick + without + rest).trim();
  }
}

// ---- which level a byte was predicted by

// The bits that each level saves at the byte after a token.
const savedAt = (model, token) => Array.from({ length: model.levels }, (_, level) =>
  bits(model.next.came[token] - model.next.came_by_level[level * (length - 1) + token]));

function originLegend(model) {
  const made = element('div', undefined, { class: 'legend' });
  for (let level = 0; level < model.levels; ++level) {
    const item = element('span'), key = element('span', undefined, { class: 'key' });
    key.style.background = levelColour(level);
    item.append(key, `level ${level}, ${counted(1 << level, 'byte')}`);
    made.append(item);
  }
  return made;
}

function costTable(model) {
  const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;
  const came = Array.from(model.next.came), total = -bits(mean(came));
  const scroll = element('div', undefined, { class: 'scroll' }), table = element('table'), row = element('tr');
  row.append(element('th', 'bits per byte', { scope: 'row' }), element('td', total.toFixed(2)));
  for (let level = 0; level < model.levels; ++level) {
    const flat = -bits(mean(Array.from(model.next.came_by_level.subarray(level * (length - 1), (level + 1) * (length - 1)))));
    const cell = element('td', flat.toFixed(2));
    cell.style.background = cssOf(behindText((flat - total) / bitsOfWholeColour));
    row.append(cell);
  }
  const body = element('tbody');
  body.append(row);
  table.append(headWithLevels(model, ['this text', 'all levels'], 'without level'), body);
  scroll.append(table);
  return scroll;
}

function origins(model, parent) {
  if (!model.next || model.levels < 2 || length < 2) return;
  const strip = new Strip('Which level each byte was predicted by');
  const smallest = .1;
  const strongest = token => {
    const saved = savedAt(model, token - 1), most = Math.max(...saved);
    return { level: saved.indexOf(most), most };
  };
  strip.legend.append(originLegend(model));
  strip.paint(token => {
    if (token === 0) return signed(0);
    const { level, most } = strongest(token);
    return { colour: levelColour(level), amount: most < smallest ? 0 : .35 + .65 * clamp(most / bitsOfWholeColour) };
  });
  const show = token => {
    strip.mark(token);
    const saved = token > 0 ? savedAt(model, token - 1) : [];
    strip.caption.textContent = 'The colour is that of the level without which the byte would have taken most bits more, none below ' + smallest + ' bits. ' +
      (token > 0 ? `${nameOf(token)} took ${(-bits(model.next.came[token - 1])).toFixed(2)} bits; ` +
        saved.map((more, level) => `without level ${level} ${minus((more >= 0 ? '+' : '') + more.toFixed(2))}`).join(', ') + '.' : 'Nothing predicts the first byte.');
  };
  selection.listeners.push(show);
  parent.append(strip.figure, costTable(model));
  show(selection.token);
}
